package provider

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
)

// fromNineToFive is a world at nine on a day, in which bob shares from nine to five.
func fromNineToFive(t *testing.T) *world {
	t.Helper()
	time.Sleep(24*time.Hour - time.Since(time.Now().UTC().Truncate(24*time.Hour)) + 9*time.Hour)
	policy := sharing.Default(50)
	policy.Spec.Hours, policy.Spec.TimeZone = []v1alpha1.SharingHours{{From: "09:00", To: "17:00"}}, "UTC"
	return newWorld(t, policy)
}

var some = map[string]string{"cpu": "1", "memory": "1Gi", "pods": "5"}

// A contract that is signed in a policy's hours ends with them, at whatever moment it is signed until its offer lapses, and no renewal lasts longer.
func TestAContractEndsWithThePolicysHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fromNineToFive(t)
		alice := load(t)
		ends := time.Now().Add(8 * time.Hour).Truncate(time.Minute)
		d.saysYes(t, alice, some)
		outcome, err := d.Outcome(t.Context(), peering.Caller{ID: alice.ID()}, d.requests(t)[0].Name)
		if err != nil || outcome.Offer == nil {
			t.Fatal(outcome, err)
		}
		runs := time.Duration(outcome.Offer.ValidFor) * time.Second
		if last := outcome.Offer.ValidUntil.Add(runs); last.After(ends) || last.Before(ends.Add(-time.Second)) {
			t.Errorf("a contract of it that is signed as late as may be would end at %s, the hours at %s", last, ends)
		}
		doc := d.document(alice, some)
		doc.NotAfter = ends.Add(time.Second)
		if _, _, err := d.signs(t, alice, doc); !declined(err, "the contract runs past the hours of SharingPolicy default, which end") {
			t.Error(err)
		}
		doc = d.document(alice, some)
		doc.NotAfter = time.Now().Add(runs).Truncate(time.Second)
		if _, _, err := d.signs(t, alice, doc); err != nil {
			t.Fatal(err)
		}

		// Two thirds of it are over: the whole time again is past the hours, and an hour, which the consumer tries then, is less than it has.
		time.Sleep(runs * 2 / 3)
		again := d.document(alice, some)
		again.ID, again.Revision, again.NotAfter = doc.ID, 2, time.Now().Add(runs).Truncate(time.Second)
		if _, _, err := d.signs(t, alice, again); !declined(err, "past the hours") {
			t.Error(err)
		}
		again.NotAfter = time.Now().Add(time.Hour).Truncate(time.Second)
		if _, _, err := d.signs(t, alice, again); !declined(err, "the contract in force runs as long as that already") {
			t.Error(err)
		}
		// An hour before the end of the hours it can be a little more than it has, and never more than they are.
		time.Sleep(time.Until(ends) - time.Hour)
		again = d.document(alice, some)
		again.ID, again.Revision, again.NotAfter = doc.ID, 2, ends
		if _, _, err := d.signs(t, alice, again); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		again.Revision, again.NotAfter = 3, ends.Add(time.Second)
		if _, _, err := d.signs(t, alice, again); err == nil {
			t.Error("signed past the hours")
		}
		// After the hours nothing is renewed.
		time.Sleep(time.Hour)
		again = d.document(alice, some)
		again.ID, again.Revision = doc.ID, 3
		if _, _, err := d.signs(t, alice, again); !declined(err, "outside of the hours of SharingPolicy default, which begin") {
			t.Error(err)
		}
	})
}

// Who asks outside of the hours hears when they begin. A request that waits when they end says so, and by itself when they are there again.
func TestHoursBeginAndEndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fromNineToFive(t)
		alice := stranger(1, "192.0.2.11")
		time.Sleep(8*time.Hour - time.Hour - holds - time.Minute)
		id, err := d.ask(t, alice, "alice")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // what is signed as late as an offer holds would not run an hour
		_, err = d.ask(t, stranger(3, "192.0.2.13"), "dave")
		if !declined(err, "the hours of SharingPolicy default end") {
			t.Error(err)
		}
		var r v1alpha1.PeeringRequest
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: id}, &r); err != nil {
			t.Fatal(err)
		}
		look := func() (time.Duration, string) {
			t.Helper()
			again, err := d.Provider.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: id}})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.client.Get(t.Context(), client.ObjectKey{Name: id}, &r); err != nil {
				t.Fatal(err)
			}
			return again.RequeueAfter, r.Status.Grant.Summary
		}
		// One that may be answered all night: it is looked at when the hours end, and when they begin.
		r.Spec.Expires.Time = time.Now().Add(47 * time.Hour).Truncate(time.Second)
		if err := d.client.Update(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
		again, _ := look()
		time.Sleep(again)
		if now := time.Now().UTC().Format("15:04"); now != "17:00" {
			t.Errorf("looked at again at %s", now)
		}
		again, says := look()
		if !strings.HasPrefix(says, "nothing: it is outside of the hours of SharingPolicy default, which begin") {
			t.Error(says)
		}
		time.Sleep(again)
		if now := time.Now().UTC().Format("15:04"); now != "09:00" {
			t.Errorf("looked at again at %s", now)
		}
	})
}

// declined reports whether the error is a decline that says so.
func declined(err error, says string) bool {
	return errors.Is(err, &peering.Problem{Code: peering.CodeDeclined}) && strings.Contains(fmt.Sprint(err), says)
}
