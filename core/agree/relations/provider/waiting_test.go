package provider

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

func TestAQuestionGetsAnotherNameWhereOneIsTaken(t *testing.T) {
	d := newWorld(t)
	d.taken = 4
	if name, err := d.ask(t, stranger(1, "192.0.2.1"), "alice"); err != nil || len(d.requests(t)) != 1 {
		t.Errorf("%q, %v", name, err)
	}
	d.taken = 5
	if _, err := d.ask(t, stranger(2, "192.0.2.2"), "carol"); err == nil || !strings.Contains(err.Error(), "keep the request of carol") {
		t.Error(err)
	}
}

// A flood of questions under ever new keys, from a few addresses, keeps nobody from asking.
func TestAFloodOfQuestionsDoesNotBlockPairing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := stranger(1, "192.0.2.9")
		d := newWorld(t, sharing.Default(50), acceptedPeer("dave", known.ID))
		if _, err := d.ask(t, known, "dave"); err != nil {
			t.Fatal(err)
		}
		flood := func(n int, addr string) (refused int) {
			for i := range n {
				time.Sleep(time.Second)
				var problem *peering.Problem
				if _, err := d.ask(t, stranger(1000+i, addr), "carol"); errors.As(err, &problem) && problem.Code == peering.CodeRateLimited {
					refused++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			return refused
		}
		flood(80, "192.0.2.66")
		for i := range 40 { // one machine with 40 of its addresses
			flood(1, fmt.Sprintf("2001:db8:0:1::%x", i))
		}
		alice := stranger(7, "192.0.2.1")
		name, err := d.ask(t, alice, "alice")
		if err != nil {
			t.Fatalf("alice cannot ask: %v", err)
		}
		if flood(80, "192.0.2.66") == 0 {
			t.Error("a flood from one address is never refused")
		}
		pending := slices.DeleteFunc(d.requests(t), func(r v1alpha1.PeeringRequest) bool { return !Pending(&r) })
		from := map[string]int{}
		for _, r := range pending {
			from[r.Spec.Address]++
		}
		has := func(id identity.ID) bool {
			return slices.ContainsFunc(pending, func(r v1alpha1.PeeringRequest) bool { return r.Spec.PeerID == id.String() })
		}
		if len(pending) != maxPending || !has(alice.ID) || !has(known.ID) {
			t.Errorf("%d wait, alice %v, dave whom we know %v: %v", len(pending), has(alice.ID), has(known.ID), from)
		}
		for i := range pending {
			if pending[i].Name == name {
				if err := answer(t.Context(), d.client, &pending[i], v1alpha1.AnswerAccepted, "", ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		if outcome, err := d.Outcome(t.Context(), alice, name); err != nil || outcome.State != peering.OutcomeAccepted {
			t.Errorf("alice hears %+v, %v", outcome, err)
		}
	})
}

func TestWhoGivesWayToANewcomer(t *testing.T) {
	type one struct {
		addr           string
		known, pending bool
	}
	many := func(n int, o one) (out []one) { return slices.Repeat([]one{o}, n) }
	mallory, alice := one{"192.0.2.66", false, true}, one{"192.0.2.1", false, true}
	for _, tc := range []struct {
		name     string
		all      []one
		newcomer one
		goes     []int // by place, oldest first
		refused  bool
	}{
		{"there is room", many(maxPending-1, mallory), mallory, nil, false},
		{"full from one address, another comes", many(maxPending, mallory), alice, []int{0}, false},
		{"full from one address, it comes again", many(maxPending, mallory), mallory, nil, true},
		{"the oldest of the fullest goes, not the oldest", append([]one{alice}, many(maxPending-1, mallory)...), one{"192.0.2.2", false, true}, []int{1}, false},
		{"a key that is known comes to a full house", many(maxPending, mallory), one{"192.0.2.66", true, true}, []int{0}, false},
		{"known keys do not go", many(maxPending, one{"192.0.2.66", true, true}), alice, nil, true},
		{"nor for another known key", many(maxPending, one{"192.0.2.66", true, true}), one{"192.0.2.3", true, true}, nil, true},
		{"who was answered does not wait", many(maxPending, one{"192.0.2.66", false, false}), mallory, nil, false},
		{"a cache that was behind is made up for", many(maxPending+2, mallory), alice, []int{0, 1, 2}, false},
		{"answered ones are bounded too", many(maxRequests, one{"192.0.2.66", false, false}), alice, []int{0}, false},
		{"a /64 is one address", append(many(maxPending-1, one{"2001:db8::1", false, true}), one{"2001:db8::2", false, true}), one{"2001:db8::3", false, true}, nil, true},
		{"another /64 is another", many(maxPending, one{"2001:db8::1", false, true}), one{"2001:db8:0:1::1", false, true}, []int{0}, false},
		{"IPv4 written as IPv6 is the same", many(maxPending, one{"::ffff:192.0.2.66", false, true}), mallory, nil, true},
	} {
		var all []asker
		for i, o := range tc.all {
			r := &v1alpha1.PeeringRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0))}}
			all = append(all, asker{request: r, from: wire.Neighbourhood(netip.MustParseAddr(o.addr)), known: o.known, pending: o.pending})
		}
		slices.Reverse(all)
		gone, ok := displaced(all, asker{from: wire.Neighbourhood(netip.MustParseAddr(tc.newcomer.addr)), known: tc.newcomer.known})
		var names, want []string
		for _, r := range gone {
			names = append(names, r.Name)
		}
		for _, i := range tc.goes {
			want = append(want, fmt.Sprint(i))
		}
		if ok == tc.refused || !slices.Equal(names, want) {
			t.Errorf("%s: let in %v, goes %v; want %v, %v", tc.name, ok, names, !tc.refused, want)
		}
	}
}

// What nobody asked for here, or another did, is not looked up past the cache.
func TestUnknownRequestsCostNoReads(t *testing.T) {
	d := newWorld(t)
	alice, mallory := stranger(1, "192.0.2.1"), stranger(2, "192.0.2.66")
	name, err := d.ask(t, alice, "alice")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		for _, id := range []string{fmt.Sprintf("alice-%04d", i), name} {
			if _, err := d.Outcome(t.Context(), mallory, id); !errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) {
				t.Fatalf("%s: %v", id, err)
			}
		}
	}
	if n := d.reads.Load(); n != 0 {
		t.Errorf("%d reads of the API server", n)
	}
	if _, err := d.request(t.Context(), alice, name); err != nil {
		t.Errorf("made a moment ago: %v", err)
	}
}

// A consumer compares the books in the moment after both signed. Were its contract not in them, it would take it for ended.
func TestAContractSignedAMomentAgoIsInTheBooks(t *testing.T) {
	alice := stranger(1, "192.0.2.1")
	ctr := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Name: "alice-in"}, Spec: v1alpha1.ContractSpec{ID: contract.NewID(), Peer: "alice", Role: v1alpha1.RoleProvider, Revision: 1}}
	d := newWorld(t, sharing.Default(50), acceptedPeer("alice", alice.ID), ctr)
	if refs, err := d.Contracts(t.Context(), alice); err != nil || len(refs) != 1 || refs[0].ID != ctr.Spec.ID {
		t.Errorf("the books have %v, %v; want contract %s", refs, err, ctr.Spec.ID)
	}
}

func TestBooksAreComparedWithinARate(t *testing.T) {
	alice := stranger(1, "192.0.2.1")
	d := newWorld(t, sharing.Default(50), acceptedPeer("alice", alice.ID))
	var refused, answered int
	for range 1000 {
		if _, err := d.Contracts(t.Context(), alice); errors.Is(err, &peering.Problem{Code: peering.CodeRateLimited}) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		} else {
			answered++
		}
	}
	if refused == 0 || answered > 10*compareBurst || d.reads.Load() != 0 {
		t.Errorf("%d answered, %d refused, %d reads of the API server", answered, refused, d.reads.Load())
	}
	if refs, err := d.Contracts(t.Context(), stranger(2, "192.0.2.1")); err != nil || refs != nil {
		t.Errorf("a stranger hears %v, %v", refs, err)
	}
}

// carol's name is in a policy that accepts by itself; a stranger takes it for his own.
func TestAnImpostorIsAskedAboutAndAcceptedByNoPolicy(t *testing.T) {
	carol := stranger(1, "192.0.2.3")
	forCarol := sharing.Default(100)
	forCarol.Name = "carol"
	forCarol.Spec.Peers, forCarol.Spec.AutoAccept, forCarol.Spec.Priority = []string{"carol"}, true, 10
	forCarol.Spec.PodSecurity = v1alpha1.PodSecurityPrivileged
	for _, tc := range []struct {
		who    string
		caller peering.Caller
		peers  []client.Object
		answer v1alpha1.Answer
	}{
		{"before carol was ever here", stranger(2, "192.0.2.66"), nil, ""},
		{"beside carol", stranger(2, "192.0.2.66"), []client.Object{acceptedPeer("carol", carol.ID)}, ""},
		{"carol herself", carol, []client.Object{acceptedPeer("carol", carol.ID)}, v1alpha1.AnswerAccepted},
	} {
		d := newWorld(t, append(tc.peers, sharing.Default(50), forCarol.DeepCopy())...)
		name, err := d.ask(t, tc.caller, "carol")
		if err != nil {
			t.Fatal(err)
		}
		var r v1alpha1.PeeringRequest
		if err := d.client.Get(t.Context(), client.ObjectKey{Name: name}, &r); err != nil || r.Status.Answer != tc.answer {
			t.Errorf("%s: answer %q, want %q (%v)", tc.who, r.Status.Answer, tc.answer, err)
		}
		if tc.answer == "" { // the owner says yes: it is a stranger's share, not carol's
			if err := answer(t.Context(), d.client, &r, v1alpha1.AnswerAccepted, "", ""); err != nil {
				t.Fatal(err)
			}
		}
		outcome, err := d.Outcome(t.Context(), tc.caller, name)
		if err != nil || outcome.Offer == nil || (outcome.Offer.PodSecurity == "privileged") != (tc.answer != "") {
			t.Errorf("%s: offered %+v, %v", tc.who, outcome.Offer, err)
		}
	}
}

func TestOnlyTheAddressAnAskerCameFromIsDialled(t *testing.T) {
	for _, tc := range []struct {
		from string
		told []string
		want []string
	}{
		{"192.0.2.1", []string{"192.0.2.1:6450"}, []string{"192.0.2.1:6450"}},
		{"192.0.2.1", []string{"127.0.0.1:6443", "10.0.0.5:22", "intranet.example.com:443", "[::1]:6450"}, []string{"192.0.2.1:6443", "192.0.2.1:22"}},
		{"192.0.2.1", []string{"10.0.0.5:6450", "172.16.0.1:6450", "192.0.2.1:6450"}, []string{"192.0.2.1:6450"}},
		{"fe80::1%eth0", []string{"192.0.2.1:6450"}, []string{"[fe80::1%eth0]:6450"}},
		{"::ffff:192.0.2.1", []string{"x:6450"}, []string{"192.0.2.1:6450"}},
		{"192.0.2.1", []string{"x", "x:0", "x:99999", ""}, nil},
		{"192.0.2.1", nil, nil},
	} {
		if got := reachableAt(netip.MustParseAddr(tc.from), tc.told); !slices.Equal(got, tc.want) {
			t.Errorf("from %s, told %v: %v, want %v", tc.from, tc.told, got, tc.want)
		}
	}
}
