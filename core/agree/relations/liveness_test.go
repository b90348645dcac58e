package relations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/consumer"
	"kith.dev/core/api/v1alpha1"
)

// heardOf notes what nodes and hosting are told.
type heardOf struct {
	consumer.Fleet
	told []string
}

func (h *heardOf) say(format string, args ...any) {
	h.told = append(h.told, fmt.Sprintf(format, args...))
}

func (h *heardOf) Ensure(context.Context, *v1alpha1.Peer, *v1alpha1.Contract) error { return nil }
func (h *heardOf) SetTunnel(peer, why string)                                       { h.say("%s's tunnel: %q", peer, why) }
func (h *heardOf) SetHome(peer *v1alpha1.Peer, there presence.Presence) {
	h.say("home %s: %v", peer.Name, there.Reachable())
}

func (h *heardOf) SetPresence(peer string, p presence.Presence) {
	h.say("%s is %s %s: %s, heard %s", peer, p.State, p.Cause, p.Why, p.Heard.Format(time.RFC3339Nano))
}

func TestNodesAndGuestsAreToldWhoIsThere(t *testing.T) {
	now := time.Now()
	ago := now.Add(-11 * time.Second)
	for what, c := range map[string]struct {
		contact peering.Contact
		want    []string
	}{
		"hangs":                  {peering.Contact{Presence: presence.Presence{State: presence.Unreachable, Why: "no answer", Since: now, Heard: ago}}, []string{"bob is unreachable : no answer, heard " + ago.Format(time.RFC3339Nano), "home bob: false"}},
		"its Kubernetes is away": {peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: now, Cause: presence.Ailing, Why: "its Kubernetes does not answer"}}, []string{"bob is reachable ailing: its Kubernetes does not answer, heard 0001-01-01T00:00:00Z", "home bob: true"}},
		"is there":               {peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: now}}, []string{"home bob: true"}},
	} {
		peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{Request: &v1alpha1.ResourceRequest{}}, Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{PublicKey: "x", GuestsHere: "10.64.0.0/24", GuestsThere: "10.65.0.0/24"}}}
		ctr := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "bob-1"}, Spec: v1alpha1.ContractSpec{Peer: "bob", ID: "1", NotAfter: &metav1.Time{Time: now.Add(time.Hour)}}}
		told := &noted{}
		alice := newCluster(t)
		for _, o := range []client.Object{peer, ctr} {
			status := o.DeepCopyObject().(client.Object)
			if err := alice.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			status.SetResourceVersion(o.GetResourceVersion())
			if err := alice.Status().Update(t.Context(), status); err != nil {
				t.Fatal(err)
			}
		}
		r := newReconciler(alice, away{c.contact}, told, nil)
		if !c.contact.Works() {
			if _, err := r.Consumer.Outgoing(t.Context(), alice.peer(t, "bob"), c.contact, []*v1alpha1.Contract{ctr}, nil); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := r.Provider.Incoming(t.Context(), alice.peer(t, "bob"), c.contact.Presence, []*v1alpha1.Contract{ctr}, nil); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if !slices.Equal(told.told, c.want) {
			t.Errorf("%s: told %q, want %q", what, told.told, c.want)
		}
	}
}

// starting is a provider whose Kubernetes is not there yet.
type starting struct{ peering.Handler }

func (starting) Recognise(context.Context, peering.Caller) bool { return true }

func (starting) Contracts(context.Context, peering.Caller) ([]peering.ContractRef, error) {
	return nil, peering.Refuse(peering.CodeUnavailable, "the Kubernetes of this laptop is not ready", "try again in a moment")
}

// A provider's Kubernetes takes its time after a power loss: however often it was asked by then, it is asked again soon.
func TestAProviderThatStartsIsAskedAgainWithoutGrowingPauses(t *testing.T) {
	bob, alice := load(t), newCluster(t)
	ctr := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "bob-1"}, Spec: v1alpha1.ContractSpec{
		Peer: "bob", ID: "1", Role: v1alpha1.RoleConsumer, NotAfter: &metav1.Time{Time: time.Now().Add(time.Hour)},
	}}
	peer := acceptedPeer("bob", bob.ID())
	peer.Spec.Request = &v1alpha1.ResourceRequest{Attempt: 1}
	for _, o := range []client.Object{ctr, peer} {
		if err := alice.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	peer.Status.Outgoing = v1alpha1.DirectionStatus{State: v1alpha1.StateConnected, Contract: "bob-1", Attempt: 1}
	if err := alice.Status().Update(t.Context(), peer); err != nil {
		t.Fatal(err)
	}
	r := newReconciler(alice, newAt(t, alice.me, serveHandler(t, bob, starting{})), &noted{}, nil)
	for i := range 20 {
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "bob"}})
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 3*time.Second {
			t.Fatalf("asked %d times: again after %s, %v", i+1, result.RequeueAfter, err)
		}
	}
	if out := alice.peer(t, "bob").Status.Outgoing; out.State != v1alpha1.StateUnreachable || !strings.Contains(out.Why, "Kubernetes of this laptop is not ready") {
		t.Errorf("%+v", out)
	}
}
