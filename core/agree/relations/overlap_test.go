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
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/agree/ledger/ledgertest"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
	"kith.dev/core/trust/contract"
)

// around is a gateway of which only the overlaps are asked for.
type around struct {
	link.Gateway
	laps *[]netip.Prefix
}

func (g around) Overlapping(string) []netip.Prefix { return *g.laps }

// deaf leads to nobody.
type deaf struct{ link.Directory }

var errDeaf = errors.New("somebody is asked")

func (deaf) Client(*v1alpha1.Peer) (*peering.Client, error) { return nil, errDeaf }

// While guests have addresses that a network around the laptop has too, the Peer says so, and how long; nothing else is agreed on until the last
// of them has ended.
func TestAnOverlapIsShownAndRenewedWhenTheLastGuestEnds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	peer := &v1alpha1.Peer{
		ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "bob"},
		Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{PublicKey: "x", GuestsThere: "10.64.3.0/24", GuestsHere: "10.65.0.0/24"}},
	}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Peer{}).WithObjects(peer).Build())
	var laps []netip.Prefix
	guests := true
	var unknown error
	r := New(Config{Client: objects, Directory: deaf{}, Log: slog.New(slog.DiscardHandler), Linker: link.New(objects, link.Config{
		Gateway: around{laps: &laps}, Guests: func(context.Context, *v1alpha1.Peer) (bool, bool, error) { return false, guests, unknown },
	})})
	look := func() (text string, asks bool) {
		t.Helper()
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(peer), peer); err != nil {
			t.Fatal(err)
		}
		if err := r.showOverlap(t.Context(), peer); err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(peer.Status.Conditions, v1alpha1.ConditionAddressesFree); c != nil {
			text = string(c.Status) + ": " + c.Message
		}
		here := peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: time.Now()}}
		r.synced["bob"] = step{since: here.Since} // over this connection
		_, err := r.sync(t.Context(), peer, here, nil, &v1alpha1.Contract{})
		if asks = errors.Is(err, errDeaf); asks == r.synced["bob"].since.Equal(here.Since) {
			t.Errorf("after %v it is in step since %s", err, r.synced["bob"].since)
		}
		return text, asks
	}
	if text, asks := look(); text != "" || asks {
		t.Errorf("%q, asks: %v", text, asks)
	}
	laps = []netip.Prefix{netip.MustParsePrefix("10.64.3.0/24")}
	for _, unknown = range []error{nil, errors.New("the cache is empty")} { // while nobody can tell, there may be some
		const kept = "False: the network that this laptop is on has addresses of guests of or at bob, 10.64.3.0/24: pods go on with these; " +
			"this laptop itself reaches its network there, and others are agreed on when the last of the pods has ended"
		if text, asks := look(); text != kept || asks {
			t.Errorf("%q, asks: %v", text, asks)
		}
	}
	unknown, guests, laps = nil, false, append(laps, netip.MustParsePrefix("10.65.0.0/24"))
	if text, asks := look(); !strings.HasSuffix(text, ", 10.64.3.0/24 and 10.65.0.0/24: others are agreed on when bob answers") || !asks {
		t.Errorf("%q, asks: %v", text, asks)
	}
	laps = nil
	if text, asks := look(); text != "" || asks {
		t.Errorf("%q, asks: %v", text, asks)
	}
}

// Whoever has a range of guests elsewhere that moved is told of nothing new; all others are, in rounds: a change that comes before a round begins
// is in that one, and those of a hub with a hundred peers do not follow each other at once.
func TestTheOthersHearOfTheAddressSpace(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	bob, carol := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}}, &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "carol"}}
	r := New(Config{Client: ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(bob, carol).Build())})
	q := queue.New("", workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	t.Cleanup(q.ShutDown)
	r.others().Update(t.Context(), event.UpdateEvent{ObjectOld: bob, ObjectNew: bob}, q)
	if got, _ := q.Get(); got != named("carol")[0] || q.Len() != 0 {
		t.Errorf("%v, and %d more", got, q.Len())
	}

	now := time.Now().Add(time.Hour)
	for i, c := range []struct{ after, wait time.Duration }{
		{0, 0},
		{time.Millisecond, 100*tellOne - time.Millisecond},
		{99 * tellOne, tellOne},
		{100*tellOne + time.Millisecond, 100*tellOne - time.Millisecond},
		{time.Minute, 0},
	} {
		if got := r.nextRound(100, now.Add(c.after)); got != c.wait {
			t.Errorf("change %d, after %s, waits %s, want %s", i, c.after, got, c.wait)
		}
	}
}

// While books and link are brought in step something is heard for which that has to be done once more: it is.
func TestNewsInTheMiddleAreNotForgotten(t *testing.T) {
	bob, alice := newCluster(t), newCluster(t)
	ctr := &v1alpha1.Contract{Spec: v1alpha1.ContractSpec{ID: "a1b2c3d4e5f6g7h8", Role: v1alpha1.RoleProvider}}
	d := &told{at: newAt(t, alice.me, serveHandler(t, bob.me, books{}))}
	r := newReconciler(alice, d, &noted{}, &provider.Notices{})
	t.Cleanup(r.Consumer.Close)
	here := peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: time.Now()}}
	for _, d.hears = range []func(){func() {}, func() { r.Compare("bob") }} {
		again, err := r.sync(t.Context(), acceptedPeer("bob", bob.me.ID()), here, nil, ctr)
		if err != nil || again != 0 {
			t.Fatal(again, err)
		}
		if len(r.pokes) == 0 != r.synced["bob"].since.Equal(here.Since) {
			t.Errorf("%d pokes, in step since %v", len(r.pokes), r.synced)
		}
	}
}

// told is a directory; whoever asks it hears something meanwhile.
type told struct {
	*at
	hears func()
}

func (d *told) Client(peer *v1alpha1.Peer) (*peering.Client, error) {
	d.hears()
	return d.at.Client(peer)
}

// books has one contract.
type books struct{ peering.Handler }

func (books) Recognise(context.Context, peering.Caller) bool { return true }

func (books) Contracts(context.Context, peering.Caller) ([]peering.ContractRef, error) {
	return []peering.ContractRef{{ID: "a1b2c3d4e5f6g7h8", Revision: 1, Role: contract.Consumer, State: api.StateConnected}}, nil
}

// Providers are told of this cluster's address space when its guests get another range at one of them, and not for every word in a status.
func TestOnlyARangeOfOurGuestsChangesTheAddressSpace(t *testing.T) {
	at := func(there, here string) *v1alpha1.Peer {
		return &v1alpha1.Peer{Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{PublicKey: "x", GuestsThere: there, GuestsHere: here}}}
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

// A peer that was given to, and now gives too, has not heard of the guests that this cluster got elsewhere meanwhile: it is told over the same
// connection.
func TestWhoeverBecomesAProviderHearsOfTheAddressSpace(t *testing.T) {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, Spec: v1alpha1.PeerSpec{ID: "bob"}, Status: v1alpha1.PeerStatus{Network: &v1alpha1.NetworkStatus{PublicKey: "x", GuestsThere: "10.64.3.0/24", GuestsHere: "10.65.0.0/24"}}}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := ledgertest.Over(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(peer).Build())
	var laps []netip.Prefix
	r := New(Config{Client: objects, Directory: deaf{}, Log: slog.New(slog.DiscardHandler), Linker: link.New(objects, link.Config{
		Gateway: around{laps: &laps}, Guests: func(context.Context, *v1alpha1.Peer) (bool, bool, error) { return false, false, nil },
	})})
	here := peering.Contact{Presence: presence.Presence{State: presence.Reachable, Since: time.Now()}}
	r.synced["bob"] = step{since: here.Since}
	if _, err := r.sync(t.Context(), peer, here, nil, &v1alpha1.Contract{}); err != nil {
		t.Fatalf("while it is given to: %v", err)
	}
	if _, err := r.sync(t.Context(), peer, here, &v1alpha1.Contract{}, &v1alpha1.Contract{}); !errors.Is(err, errDeaf) {
		t.Errorf("when it gives, too, it is not asked: %v", err)
	}
	r.synced["bob"] = step{since: here.Since, space: r.Linker.Space(peer)}
	if _, err := r.sync(t.Context(), peer, here, &v1alpha1.Contract{}, &v1alpha1.Contract{}); err != nil {
		t.Errorf("it is told twice: %v", err)
	}
}
