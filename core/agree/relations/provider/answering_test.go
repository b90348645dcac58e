package provider

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
)

// What an asker hears of its question, and what is left of that a minute after it lapsed, by what was answered.
func TestWhatAnAskerHears(t *testing.T) {
	paused := func(s *v1alpha1.SharingPolicySpec) { s.Paused = true }
	for name, c := range map[string]struct {
		answer v1alpha1.Answer
		reason string
		then   func(*v1alpha1.SharingPolicySpec)
		after  time.Duration
		hears  peering.OutcomeState
		why    string
		marked v1alpha1.Answer // what the request says when it was looked at
		left   bool
	}{
		"nobody answered yet":       {hears: peering.OutcomePending, left: true},
		"declined":                  {answer: v1alpha1.AnswerDeclined, reason: "not today", hears: peering.OutcomeDeclined, why: "not today", marked: v1alpha1.AnswerDeclined, left: true},
		"declined at length":        {answer: v1alpha1.AnswerDeclined, reason: strings.Repeat("é", 200), hears: peering.OutcomeDeclined, why: strings.Repeat("é", 128), marked: v1alpha1.AnswerDeclined, left: true},
		"accepted":                  {answer: v1alpha1.AnswerAccepted, hears: peering.OutcomeAccepted, marked: v1alpha1.AnswerAccepted, left: true},
		"accepted, and then paused": {answer: v1alpha1.AnswerAccepted, then: paused, hears: peering.OutcomeDeclined, why: "sharing is paused (SharingPolicy default)", marked: v1alpha1.AnswerAccepted, left: true},
		"lapsed":                    {after: 10 * time.Minute, hears: peering.OutcomeExpired, why: "nobody answered in time", marked: v1alpha1.AnswerExpired, left: true},
		"lapsed a minute ago":       {after: 11 * time.Minute, hears: peering.OutcomeExpired, why: "nobody answered in time"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, alice := newWorld(t), stranger(1, "192.0.2.11")
				id, err := d.ask(t, alice, "alice")
				if err != nil {
					t.Fatal(err)
				}
				if c.answer != "" {
					r := d.requests(t)[0]
					if err := answer(t.Context(), d.client, &r, c.answer, "", c.reason); err != nil {
						t.Fatal(err)
					}
				}
				if c.then != nil {
					d.share(t, c.then)
				}
				time.Sleep(c.after)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				outcome, err := d.Outcome(ctx, alice, id)
				if err != nil || outcome.State != c.hears || outcome.Reason != c.why || (outcome.Offer != nil) != (c.hears == peering.OutcomeAccepted) {
					t.Errorf("hears %+v, %v", outcome, err)
				}
				if _, err := d.Provider.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: id}}); err != nil {
					t.Fatal(err)
				}
				left := d.requests(t)
				if (len(left) == 1) != c.left || c.left && left[0].Status.Answer != c.marked {
					t.Errorf("left are %+v", left)
				}
				expired := 0
				for _, e := range d.events {
					if e.Type == api.EventRequestAnswered && e.State == api.StateExpired {
						expired++
					}
				}
				if (expired == 1) != (c.marked == v1alpha1.AnswerExpired) {
					t.Errorf("the owner was told %d times that it expired", expired)
				}
			})
		})
	}
}

// A laptop that starts has no node for guests yet. A policy that answers at once does so when there is one; without such a policy the owner is asked.
func TestAPolicyAnswersWhenThereIsSomethingToGrant(t *testing.T) {
	for _, itself := range []bool{true, false} {
		policy := sharing.Default(50)
		policy.Spec.AutoAccept = itself
		d, alice := newWorld(t, policy), stranger(1, "192.0.2.11")
		node := &corev1.Node{}
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: "bob"}, node); err != nil {
			t.Fatal(err)
		}
		takes := func(guests string) {
			node.Labels[v1alpha1.LabelFenced] = guests
			if err := d.client.Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
		}
		takes("false")
		id, err := d.ask(t, alice, "alice")
		if err != nil {
			t.Fatal(err)
		}
		look := func() v1alpha1.Answer {
			if _, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: id}}); err != nil {
				t.Fatal(err)
			}
			return d.requests(t)[0].Status.Answer
		}
		if got := look(); got != "" {
			t.Errorf("by itself %t: no node takes guests, and the answer is %q", itself, got)
		}
		takes("true")
		want := map[bool]v1alpha1.Answer{true: v1alpha1.AnswerAccepted}[itself]
		if got := look(); got != want {
			t.Errorf("by itself %t: %q, want %q", itself, got, want)
		}
	}
}
