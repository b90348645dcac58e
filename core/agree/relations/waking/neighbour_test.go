package waking

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/wol"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/wake"
)

func TestANeighbourWakesForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		bob := key(t)
		for _, o := range []*v1alpha1.Peer{peer(bob, "bob", "192.168.1.9:6450"), peer(key(t), "dave", "192.168.1.10:6450"), peer(key(t), "erin", "10.0.0.9:6450")} {
			if err := alice.client.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			alice.wakes(o.Name)
		}
		for _, name := range []string{"bob", "erin"} { // with dave there is no contract
			if err := alice.client.Create(t.Context(), signed(t, alice.me, bob, name, v1alpha1.RoleConsumer, 0)); err != nil {
				t.Fatal(err)
			}
		}
		alice.network = "10.0.0.0/24"
		alice.sleeps("carol", carol.lastWord(alice))
		alice.waits("web")
		alice.refuses["bob"] = peering.Refuse(peering.CodeForbidden, "not a peer of both", "")
		alice.runs("carol", time.Minute)
		if is := alice.status("carol", v1alpha1.RoleConsumer); fmt.Sprint(alice.asked) != "[bob]" || is.State != v1alpha1.WakeNoWay || len(is.Times) != 0 {
			t.Errorf("%+v, asked %v", is, alice.asked)
		}
		delete(alice.refuses, "bob")
		alice.runs("carol", elsewhere+time.Second)
		if is := alice.status("carol", v1alpha1.RoleConsumer); fmt.Sprint(alice.asked) != "[bob bob]" || is.State != v1alpha1.WakeSent || len(is.Times) != 1 || len(alice.sent) != 0 {
			t.Errorf("%+v, asked %v", is, alice.asked)
		}
	})
}

// Neighbours that refuse for a day are asked ever more seldom, and pods hear of it once; a time is given back where none was used for sure.
func TestNeighboursThatRefuseAreAskedSeldom(t *testing.T) {
	for what, tt := range map[string]struct {
		answer error
		times  int
	}{
		"refused":   {peering.Refuse(peering.CodeForbidden, "not a peer of both", ""), 0},
		"no answer": {errors.New("the connection broke"), 3},
		"long":      {peering.Refuse(peering.CodeForbidden, strings.Repeat("é", 400), ""), 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alice, carol := pair(t, 3, 3)
				bob := key(t)
				for _, o := range []client.Object{peer(bob, "bob", "192.168.1.9:6450"), signed(t, alice.me, bob, "bob", v1alpha1.RoleConsumer, 0)} {
					if err := alice.client.Create(t.Context(), o); err != nil {
						t.Fatal(err)
					}
				}
				alice.wakes("bob")
				alice.network = "10.0.0.0/24"
				alice.refuses["bob"] = tt.answer
				alice.sleeps("carol", carol.lastWord(alice))
				alice.waits("web")
				alice.runs("carol", 20*time.Hour)
				is := alice.status("carol", v1alpha1.RoleConsumer)
				if n := len(alice.asked); n < 3 || n > 20 || len(is.Times) != tt.times || !utf8.ValidString(is.Message) || len(is.Message) > 512 {
					t.Errorf("asked %d times, %+v", n, is)
				}
				if says := alice.says(); len(says) > 3 {
					t.Errorf("%d events: %q", len(says), says)
				}
			})
		})
	}
}

// A neighbour that does not answer keeps home from the next one for seconds, and since it may have sent packets nobody is asked again so soon.
func TestANeighbourThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		for _, name := range []string{"bob", "dave"} {
			id := key(t)
			for _, o := range []client.Object{peer(id, name, "192.168.1.9:6450"), signed(t, alice.me, id, name, v1alpha1.RoleConsumer, 0)} {
				if err := alice.client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			alice.wakes(name)
		}
		var asked []time.Time
		alice.Ask = func(ctx context.Context, _ *v1alpha1.Peer, _ canonical.Signed) error {
			asked = append(asked, time.Now())
			<-ctx.Done()
			return ctx.Err()
		}
		alice.network = "10.0.0.0/24"
		alice.sleeps("carol", carol.lastWord(alice))
		alice.waits("web")
		alice.runs("carol", settle+2*again)
		if len(asked) != 4 || asked[1].Sub(asked[0]) != answers || asked[2].Sub(asked[0]) < again {
			t.Errorf("asked at %v", asked)
		}
	})
}

// Of many neighbours three are asked each time, and others the next time: those that refuse do not keep one from being asked that would do it.
func TestNeighboursAreAskedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		for i := range 7 {
			name, id := fmt.Sprint("p", i), key(t)
			for _, o := range []client.Object{peer(id, name, "192.168.1.9:6450"), signed(t, alice.me, id, name, v1alpha1.RoleConsumer, 0)} {
				if err := alice.client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			alice.wakes(name)
			if i < 6 {
				alice.refuses[name] = peering.Refuse(peering.CodeForbidden, "not a peer of both", "")
			}
		}
		alice.network = "10.0.0.0/24"
		alice.sleeps("carol", carol.lastWord(alice))
		alice.waits("web")
		alice.runs("carol", time.Minute)
		if len(alice.asked) != maxAsked {
			t.Errorf("asked %v", alice.asked)
		}
		alice.runs("carol", 10*time.Minute)
		if is := alice.status("carol", v1alpha1.RoleConsumer); is.State != v1alpha1.WakeNotWoken || len(is.Times) != 1 || len(alice.asked) != 7 {
			t.Errorf("%s, %v, asked %v", is.State, is.Times, alice.asked)
		}
	})
}

// A home whose packets reach nobody, since another network has the same addresses, asks neighbours in turn; who cannot send gives the time back.
func TestAnotherWayIsTriedWhenOneDidNotHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 4, 4)
		for _, name := range []string{"bob", "dave"} {
			id := key(t)
			for _, o := range []client.Object{peer(id, name, "192.168.1.9:6450"), signed(t, alice.me, id, name, v1alpha1.RoleConsumer, 0)} {
				if err := alice.client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			alice.wakes(name)
		}
		alice.sleeps("carol", carol.lastWord(alice))
		alice.waits("web")
		alice.runs("carol", 3*time.Hour)
		if len(alice.sent) != 2 || len(alice.asked) != 2 {
			t.Errorf("sent %v, asked %v", alice.sent, alice.asked)
		}
		alice.refuses["bob"], alice.refuses["dave"] = peering.Refuse(peering.CodeNotFound, "elsewhere", ""), peering.Refuse(peering.CodeNotFound, "elsewhere", "")
		alice.runs("carol", 2*day)
		if len(alice.sent) < 6 {
			t.Errorf("neighbours refused, and this laptop did not send: %v", alice.sent)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		alice.Send = func(context.Context, []wol.Device, net.HardwareAddr, []netip.Prefix) error {
			return errors.New("no route")
		}
		alice.sleeps("carol", carol.lastWord(alice))
		alice.waits("web")
		alice.runs("carol", time.Hour)
		if is := alice.status("carol", v1alpha1.RoleConsumer); is.State != v1alpha1.WakeNoWay || len(is.Times) != 0 || !strings.Contains(is.Message, "no route") {
			t.Errorf("%+v", is)
		}
	})
}

// A word that was said before its owner was awake last is shown to a neighbour again: it saw the owner since.
func TestANeighbourTakesNoWordOfAnEarlierSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		bob := newWorld(t, key(t), peer(alice.me, "alice"), peer(carol.me, "carol"), signed(t, alice.me, carol.me, "alice", v1alpha1.RoleProvider, 0), signed(t, alice.me, carol.me, "carol", v1alpha1.RoleConsumer, 0))
		from := peering.Caller{ID: alice.me.ID()}
		old := *carol.lastWord(alice)
		answer := func(what string, word canonical.Signed, want error, sent int) {
			t.Helper()
			if err := bob.Answer(t.Context(), from, word); !errors.Is(err, want) || len(bob.sent) != sent {
				t.Errorf("%s: %v, want %v; %d packets", what, err, want, len(bob.sent))
			}
		}
		outdated := &peering.Problem{Code: peering.CodeExpired}
		bob.wakes("carol")
		answer("awake", old, outdated, 0)
		bob.sleeps("carol", nil)
		answer("asleep", old, nil, 1)
		time.Sleep(time.Hour)
		bob.sleeps("carol", nil)
		answer("slept anew since", old, outdated, 1)
		carol.mains = false
		refuses := carol.word(carol.client.Now().InForce("alice", v1alpha1.RoleProvider), 3, nil, time.Now())
		refuses.Waker = bob.me.ID()
		toBob, err := wake.Sign(refuses, carol.me)
		if err != nil {
			t.Fatal(err)
		}
		carol.mains = true
		now := *carol.lastWord(alice)
		bob.sleeps("carol", &toBob)
		answer("on battery, as it said to the neighbour", now, outdated, 1)
		withdrawn := carol.word(carol.client.Now().InForce("alice", v1alpha1.RoleProvider), 0, nil, time.Now())
		withdrawn.Waker = bob.me.ID()
		if toBob, err = wake.Sign(withdrawn, carol.me); err != nil {
			t.Fatal(err)
		}
		bob.sleeps("carol", &toBob)
		answer("the last one, which the neighbour itself may not use", now, nil, 2)
		time.Sleep(time.Hour)
		bob.there["carol"] = peering.Contact{Presence: presence.Presence{State: presence.Unreachable, Since: time.Now()}}
		answer("a neighbour that was started anew", now, nil, 3)
	})
}

// Nothing is sent on a network where this machine did not reach the owner by itself, whatever the word says and whichever addresses the owner is said to
// have: neither by a neighbour, nor by home, whose time of the day is not used up by a network that has the same addresses.
func TestNothingIsSentWhereTheOwnerWasNotReached(t *testing.T) {
	for what, tt := range map[string]struct {
		endpoint, reached string
		sent              int
	}{
		"never reached":                         {"", "", 0},
		"reached elsewhere":                     {"10.0.0.7:6450", "", 0},
		"reached elsewhere since":               {"192.168.1.20:6450", "10.0.0.7:6450", 0},
		"reached here before a restart":         {"192.168.1.20:6450", "", 1},
		"reached here":                          {"", "192.168.1.20:6450", 1},
		"reached here since":                    {"10.0.0.7:6450", "192.168.1.20:6450", 1},
		"reached on this link by IPv6":          {"", "[fe80::7%eth0]:6450", 1},
		"reached on another link by IPv6":       {"", "[fe80::7%wlan0]:6450", 0},
		"reached from afar by IPv6":             {"", "[2001:db8::7]:6450", 0},
		"what it was reached at cannot be read": {"carol.local:6450", "", 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alice, carol := pair(t, 3, 3)
				bob := newWorld(t, key(t), peer(alice.me, "alice"), peer(carol.me, "carol"), signed(t, alice.me, carol.me, "alice", v1alpha1.RoleProvider, 0), signed(t, alice.me, carol.me, "carol", v1alpha1.RoleConsumer, 0))
				word := carol.lastWord(alice)
				for _, w := range []*world{alice, bob} {
					it := w.client.Now().PeerNamed("carol").DeepCopy()
					it.Spec.Endpoints, it.Status.Endpoint = []string{"192.168.1.20:6450"}, tt.endpoint
					if err := w.client.Update(t.Context(), it); err != nil {
						t.Fatal(err)
					}
					w.sleeps("carol", word)
					if tt.reached != "" {
						there := w.there["carol"]
						there.Reached = netip.MustParseAddrPort(tt.reached)
						w.there["carol"] = there
					}
				}
				if err := bob.Answer(t.Context(), peering.Caller{ID: alice.me.ID()}, *word); (err == nil) != (tt.sent == 1) || err != nil && !errors.Is(err, &peering.Problem{Code: peering.CodeNotFound}) || len(bob.sent) != tt.sent {
					t.Errorf("the neighbour: %v, %d packets", err, len(bob.sent))
				}
				alice.waits("web")
				alice.runs("carol", time.Minute)
				if is := alice.status("carol", v1alpha1.RoleConsumer); len(alice.sent) != tt.sent || len(is.Times) != tt.sent {
					t.Errorf("home: %d packets, %q, %v", len(alice.sent), is.Message, is.Times)
				}
			})
		})
	}
}

func TestWhomANeighbourWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 2, 2)
		bob := newWorld(t, key(t), peer(alice.me, "alice"), peer(carol.me, "carol"), signed(t, alice.me, carol.me, "alice", v1alpha1.RoleProvider, 0), signed(t, alice.me, carol.me, "carol", v1alpha1.RoleConsumer, 0))
		stranger := newWorld(t, key(t))
		word := *carol.lastWord(alice)
		from := peering.Caller{ID: alice.me.ID()}
		code := func(w *world, caller peering.Caller, word canonical.Signed) peering.Code {
			problem, _ := errors.AsType[*peering.Problem](w.Answer(t.Context(), caller, word))
			if problem == nil {
				return ""
			}
			return problem.Code
		}
		expect := func(what string, got, want peering.Code, sent int) {
			t.Helper()
			if got != want || len(bob.sent) != sent {
				t.Errorf("%s: %q, want %q; %d packets", what, got, want, len(bob.sent))
			}
		}
		expect("nothing", code(bob, from, canonical.Signed{}), peering.CodeBadRequest, 0)
		expect("a word that was said to another", code(bob, peering.Caller{ID: stranger.me.ID()}, word), peering.CodeForbidden, 0)
		if got := code(stranger, from, word); got != peering.CodeForbidden || len(stranger.sent) != 0 {
			t.Errorf("one who knows neither: %q", got)
		}
		bob.network = "10.0.0.0/24"
		expect("from another network", code(bob, from, word), peering.CodeNotFound, 0)
		bob.network = "192.168.1.0/24"
		expect("as agreed", code(bob, from, word), "", 1)
		expect("at once again", code(bob, from, word), peering.CodeRateLimited, 1)
		time.Sleep(time.Minute)
		expect("a second time", code(bob, from, word), "", 2)
		time.Sleep(time.Hour)
		expect("a third time", code(bob, from, word), peering.CodeRateLimited, 2)
		time.Sleep(day)
		expect("the next day", code(bob, from, word), "", 3)
		carol.mains = false
		expect("on battery", code(bob, from, *carol.lastWord(alice)), peering.CodeExpired, 3)
		time.Sleep(21 * day)
		expect("an old word", code(bob, from, word), peering.CodeExpired, 3)
	})
}
