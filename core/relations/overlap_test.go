package relations

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/relations/link"
)

// around is a gateway of which only the networks around the laptop are asked for.
type around struct {
	link.Gateway
	networks *[]netip.Prefix
}

func (g around) Taken(string) ([]netip.Prefix, error) { return *g.networks, nil }

// While guests have addresses that a network around the laptop has too, the Peer says so, and how long; nothing else is agreed on until the last
// of them has ended.
func TestAnOverlapIsShownAndRenewedWhenTheLastGuestEnds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	peer := &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "bob"},
		Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{GuestsThere: "10.64.3.0/24", GuestsHere: "10.65.0.0/24"}},
	}
	other := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "carol"}, Spec: v1alpha1.PeerSpec{ID: "carol"}}
	objects := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}).WithObjects(peer, other).Build()
	var networks []netip.Prefix
	guests := true
	var unknown error
	r := New(Config{Client: objects, Log: slog.New(slog.DiscardHandler), Linker: link.New(objects, link.Config{
		Gateway: around{networks: &networks}, Guests: func(context.Context, *v1alpha1.Peer) (bool, bool, error) { return false, guests, unknown },
	})})
	since := time.Now()
	r.synced["bob"], r.synced["carol"] = since, since
	look := func() (string, time.Duration) {
		t.Helper()
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(peer), peer); err != nil {
			t.Fatal(err)
		}
		again, err := r.showOverlap(t.Context(), peer)
		if err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionAddressesFree); c != nil {
			return string(c.Status) + ": " + c.Message, again
		}
		return "", again
	}
	tell := func() {
		r.Overlaps(t.Context(), []string{"bob"})
		for len(r.pokes) > 0 {
			if poked := <-r.pokes; poked.Object.GetName() != "bob" {
				t.Errorf("%s is looked at", poked.Object.GetName())
			}
		}
	}
	if text, again := look(); text != "" || again != 0 {
		t.Errorf("%q, again in %s", text, again)
	}
	networks = []netip.Prefix{netip.MustParsePrefix("10.64.0.0/16")}
	for _, unknown = range []error{nil, errors.New("the cache is empty")} { // while nobody can tell, there may be some
		tell()
		const kept = "False: the network that this laptop is on has addresses of guests of or at bob, 10.64.3.0/24: pods go on with these; " +
			"this laptop itself reaches its network there, and others are agreed on when the last of the pods has ended"
		if text, again := look(); text != kept || again != lookAgain || r.synced["bob"] != since {
			t.Errorf("%q, again in %s, in step since %s", text, again, r.synced["bob"])
		}
	}
	unknown, guests = nil, false
	tell()
	if text, _ := look(); !strings.HasSuffix(text, "others are agreed on when bob answers") || !r.synced["bob"].IsZero() || r.synced["carol"] != since {
		t.Errorf("%q, in step since %v", text, r.synced)
	}
	networks = nil
	if text, again := look(); text != "" || again != 0 {
		t.Errorf("%q, again in %s", text, again)
	}
}

// Providers are told of this cluster's address space when its guests get another range at one of them, and not for every word in a status.
func TestOnlyARangeOfOurGuestsChangesTheAddressSpace(t *testing.T) {
	at := func(there, here string) *v1alpha1.Peer {
		return &v1alpha1.Peer{Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{GuestsThere: there, GuestsHere: here}}}
	}
	for _, c := range []struct {
		what     string
		old, new *v1alpha1.Peer
		passes   bool
	}{
		{"the first link", &v1alpha1.Peer{}, at("10.64.3.0/24", ""), true},
		{"another range", at("10.64.3.0/24", ""), at("10.64.4.0/24", ""), true},
		{"the end", at("10.64.3.0/24", ""), &v1alpha1.Peer{}, true},
		{"its guests here", at("10.64.3.0/24", "10.65.0.0/24"), at("10.64.3.0/24", "10.66.0.0/24"), false},
		{"nothing", &v1alpha1.Peer{}, &v1alpha1.Peer{}, false},
	} {
		if got := guestsMoved.Update(event.UpdateEvent{ObjectOld: c.old, ObjectNew: c.new}); got != c.passes {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	if guestsMoved.Create(event.CreateEvent{Object: at("10.64.3.0/24", "")}) || !guestsMoved.Delete(event.DeleteEvent{Object: at("10.64.3.0/24", "")}) {
		t.Error("what was there at the start was told; a Peer that is forgotten takes its range along")
	}
}
