package waking

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/wol"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wake"
)

// pair are alice, at home, and carol, who grants her so many wakes a day by contract, and by her policy of now.
func pair(t *testing.T, term int64, policy int32) (alice, carol *world) {
	t.Helper()
	a, c := key(t), key(t)
	share := &v1alpha1.SharingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: v1alpha1.SharingPolicySpec{Amounts: map[string]v1alpha1.Amount{"cpu": "50%"}}}
	if policy > 0 {
		share.Spec.Wake = &policy
	}
	alice = newWorld(t, a, peer(c, "carol"), signed(t, a, c, "carol", v1alpha1.RoleConsumer, term))
	carol = newWorld(t, c, peer(a, "alice"), signed(t, a, c, "alice", v1alpha1.RoleProvider, term), share)
	return alice, carol
}

func (w *world) lastWord(to *world) *canonical.Signed { return w.LastWord(to.me.ID()) }

func TestAPodThatWaitsHasThePeerWokenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		alice.sleeps("carol", carol.lastWord(alice))
		alice.runs("carol", time.Hour)
		if len(alice.sent) != 0 {
			t.Fatal("woken, and nobody waits")
		}
		began := time.Now()
		alice.waits("web")
		alice.runs("carol", settle-time.Second)
		if len(alice.sent) != 0 {
			t.Fatal("woken before the scheduler had its time")
		}
		alice.runs("carol", 30*time.Second)
		is := alice.status("carol", v1alpha1.RoleConsumer)
		if len(alice.sent) != 1 || alice.sent[0].Sub(began) < settle || is.State != v1alpha1.WakeSent || len(is.Times) != 1 || is.Message != "waiting for carol to wake" {
			t.Fatalf("sent %v, %+v", alice.sent, is)
		}
		if says := alice.says(); len(says) != 1 || says[0] != "Normal Waking waiting for carol to wake" {
			t.Errorf("events %q", says)
		}
		alice.waits("second")
		alice.restart() // it is counted, and not done again
		alice.runs("carol", 30*time.Second)
		if len(alice.sent) != 1 || len(alice.says()) != 2 {
			t.Error("woken twice, or the second pod was not told")
		}
		alice.wakes("carol")
		alice.runs("carol", time.Second)
		is = alice.status("carol", v1alpha1.RoleConsumer)
		if is.State != v1alpha1.WakeWoken || is.Document != nil || len(is.Times) != 1 || fmt.Sprint(alice.asked) != "[carol]" {
			t.Errorf("%+v, asked %v", is, alice.asked)
		}
		alice.runs("carol", time.Hour)
		if len(alice.sent) != 1 || len(alice.asked) != 1 {
			t.Errorf("sent %v, asked %v", alice.sent, alice.asked)
		}
	})
}

// One that was woken and cannot count it yet is told until it does; one that refuses is not told again.
func TestWhoWasWokenIsToldUntilItHasCounted(t *testing.T) {
	for code, again := range map[peering.Code]bool{peering.CodeInternal: true, peering.CodeUnavailable: true, peering.CodeRateLimited: false, peering.CodeNoContract: false} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alice, carol := pair(t, 3, 3)
				alice.sleeps("carol", carol.lastWord(alice))
				alice.waits("web")
				alice.runs("carol", 30*time.Second)
				alice.wakes("carol")
				alice.refuses["carol"] = peering.Refuse(code, "not now", "")
				req := ctrl.Request{NamespacedName: types.NamespacedName{Name: "carol"}}
				if _, err := alice.Reconcile(t.Context(), req); (err != nil) != again {
					t.Errorf("%v", err)
				}
				delete(alice.refuses, "carol")
				alice.runs("carol", time.Second)
				if is := alice.status("carol", v1alpha1.RoleConsumer); is.State != v1alpha1.WakeWoken || (len(alice.asked) == 2) != again {
					t.Errorf("%+v, asked %v", is, alice.asked)
				}
			})
		})
	}
}

func TestOneThatDoesNotComeIsWokenSeldomAndNoMoreThanAgreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		alice.sleeps("carol", carol.lastWord(alice))
		alice.waits("web")
		began := time.Now()
		alice.runs("carol", 2*time.Minute)
		if is := alice.status("carol", v1alpha1.RoleConsumer); is.State != v1alpha1.WakeNotWoken {
			t.Errorf("%+v", is)
		}
		alice.runs("carol", 23*time.Hour)
		if len(alice.sent) != 3 {
			t.Fatalf("sent %v", alice.sent)
		}
		if first, second := alice.sent[1].Sub(alice.sent[0]), alice.sent[2].Sub(alice.sent[1]); first < again || second < 2*again {
			t.Errorf("pauses of %s and %s", first, second)
		}
		is := alice.status("carol", v1alpha1.RoleConsumer)
		if is.State != v1alpha1.WakeSpent || !strings.Contains(is.Message, "3/day") {
			t.Errorf("%+v", is)
		}
		if says := strings.Join(alice.says(), "\n"); !strings.Contains(says, "Normal WakeSpent carol was woken 3/day already, as agreed") || !strings.Contains(says, "WakeNotWoken") {
			t.Errorf("events: %s", says)
		}
		if _, err := alice.Wake(t.Context(), "carol"); !errors.Is(err, &api.Error{Code: api.CodeConflict}) || len(alice.sent) != 3 {
			t.Errorf("by hand beyond the bound: %v", err)
		}
		alice.runs("carol", 2*time.Hour)
		if len(alice.sent) < 4 || alice.sent[3].Sub(began) < day {
			t.Errorf("after a day: %v", alice.sent)
		}
		for i := range alice.sent {
			n := 0
			for _, at := range alice.sent[i:] {
				if at.Sub(alice.sent[i]) < day-time.Second {
					n++
				}
			}
			if n > 3 {
				t.Errorf("%d within a day", n)
			}
		}
	})
}

func TestNobodyIsWokenWhoseLastWordRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		term   int64
		policy int32
		change func(carol *world)
		state  v1alpha1.WakeState
		event  string
	}{
		"without the term":            {0, 3, nil, "", ""},
		"on battery":                  {3, 3, func(carol *world) { carol.mains = false }, v1alpha1.WakeOnBattery, "WakeOnBattery carol went to sleep on battery"},
		"taken away since":            {3, 0, nil, v1alpha1.WakeWithdrawn, "WakeWithdrawn the owner of carol"},
		"without a device":            {3, 3, func(carol *world) { carol.network = "" }, v1alpha1.WakeNoDevice, "WakeNoDevice carol has no network device"},
		"on a network without others": {3, 3, func(carol *world) { carol.network = "192.168.1.7/32" }, v1alpha1.WakeNoDevice, "WakeNoDevice"},
		"on another network":          {3, 3, func(carol *world) { carol.network = "10.9.0.0/16" }, v1alpha1.WakeNoWay, "WakeNoWay neither this laptop nor a peer"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alice, carol := pair(t, tt.term, tt.policy)
				if tt.change != nil {
					tt.change(carol)
				}
				alice.sleeps("carol", carol.lastWord(alice))
				alice.waits("web")
				alice.runs("carol", time.Hour)
				if is := alice.status("carol", v1alpha1.RoleConsumer); is.State != tt.state || len(is.Times) != 0 || len(alice.sent)+len(alice.asked) != 0 {
					t.Errorf("%+v, sent %v", is, alice.sent)
				}
				if says := strings.Join(alice.says(), "\n"); !strings.Contains(says, tt.event) || (tt.event == "") != (says == "") {
					t.Errorf("events: %q", says)
				}
				if _, err := alice.Wake(t.Context(), "carol"); !errors.Is(err, &api.Error{Code: api.CodeConflict}) || len(alice.sent) != 0 {
					t.Errorf("by hand: %v", err)
				}
			})
		})
	}
}

func TestAWordThatIsNotThePeersIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		_, mallory := pair(t, 3, 3)
		toOthers := carol.word(carol.client.Now().InForce("alice", v1alpha1.RoleProvider), 3, nil, time.Now())
		toOthers.Refused, toOthers.PerDay, toOthers.Waker = wake.OnBattery, 0, mallory.me.ID()
		other, err := wake.Sign(toOthers, carol.me)
		if err != nil {
			t.Fatal(err)
		}
		good := carol.lastWord(alice)
		for what, word := range map[string]*canonical.Signed{
			"none": nil, "nothing": {}, "said to another": &other, "cut": {Document: good.Document[1:], Signature: good.Signature},
			"with another signature": {Document: good.Document, Signature: other.Signature},
		} {
			alice.sleeps("carol", word)
			alice.waits("web")
			alice.runs("carol", time.Hour)
			if is := alice.status("carol", v1alpha1.RoleConsumer); is.Document != nil || len(alice.sent) != 0 {
				t.Errorf("%s: %+v", what, is)
			}
		}
		// Who writes the status of a contract wakes nobody.
		ctr := alice.client.Now().InForce("carol", v1alpha1.RoleConsumer)
		if _, err := alice.put(t.Context(), ctr, &v1alpha1.WakeStatus{Document: other.Document, Signature: other.Signature}); err != nil {
			t.Fatal(err)
		}
		alice.there["carol"] = peering.Contact{Presence: presence.Presence{State: presence.Unreachable}}
		alice.runs("carol", time.Hour)
		if len(alice.sent) != 0 {
			t.Error("woken by a word of the status that is another's")
		}
	})
}

// Of peers that have no such contract any more nothing is kept.
func TestNothingIsKeptOfPeersThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		alice.sleeps("carol", carol.lastWord(alice))
		alice.waits("web")
		alice.runs("carol", time.Minute)
		if len(alice.told) != 1 {
			t.Fatalf("told %v", alice.told)
		}
		if err := alice.client.Delete(t.Context(), alice.client.Now().InForce("carol", v1alpha1.RoleConsumer)); err != nil {
			t.Fatal(err)
		}
		alice.runs("carol", time.Second)
		if len(alice.told)+len(alice.refused) != 0 {
			t.Errorf("told %v, refused %v", alice.told, alice.refused)
		}
	})
}

func TestWhatCannotBeWrittenIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		alice.sleeps("carol", carol.lastWord(alice))
		alice.runs("carol", time.Second)
		alice.waits("web")
		alice.cut = true
		alice.runs("carol", time.Minute)
		if len(alice.sent) != 0 {
			t.Error("sent, and not counted")
		}
	})
}

// A home that was started anew, or came after the peer slept for long, has its last word.
func TestALastWordOutlastsARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 3, 3)
		alice.sleeps("carol", carol.lastWord(alice))
		alice.runs("carol", time.Second)
		alice.restart()
		alice.there["carol"] = peering.Contact{Presence: presence.Presence{State: presence.Unreachable}}
		alice.waits("web")
		alice.runs("carol", time.Minute)
		if len(alice.sent) != 1 {
			t.Errorf("sent %v", alice.sent)
		}
		alice.pods = nil
		alice.runs("carol", 21*24*time.Hour) // beyond the contract's end, which is not looked at here
		alice.waits("late")
		alice.runs("carol", time.Minute)
		if is := alice.status("carol", v1alpha1.RoleConsumer); is.State != v1alpha1.WakeExpired || len(alice.sent) != 1 {
			t.Errorf("%+v, sent %v", is, alice.sent)
		}
	})
}

// A word of one sleep wakes nobody in another: where nothing was said before that, or where it may have gone unseen.
func TestALastWordIsOfOneSleep(t *testing.T) {
	away := peering.Contact{Presence: presence.Presence{State: presence.Unreachable}}
	for what, tt := range map[string]struct {
		then  func(alice *world)
		after time.Duration
		state v1alpha1.WakeState
		sent  int
	}{
		"the same sleep, for long":        {func(*world) {}, 3 * day, v1alpha1.WakeSent, 1},
		"it slept anew, without a word":   {func(alice *world) { alice.sleeps("carol", nil) }, 0, "", 0},
		"without one that can be read":    {func(alice *world) { alice.sleeps("carol", &canonical.Signed{Document: []byte("{}")}) }, 0, "", 0},
		"home was started anew, at once":  {func(alice *world) { alice.restart(); alice.there["carol"] = away }, time.Hour, v1alpha1.WakeSent, 1},
		"home was started anew, and late": {func(alice *world) { alice.restart(); alice.there["carol"] = away }, missed, v1alpha1.WakeExpired, 0},
		"home slept a night":              {func(alice *world) { time.Sleep(9 * time.Hour); alice.Woke() }, 0, v1alpha1.WakeSent, 1},
		"home slept for long":             {func(alice *world) { time.Sleep(2 * day); alice.Woke() }, 0, v1alpha1.WakeExpired, 0},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alice, carol := pair(t, 3, 3)
				alice.sleeps("carol", carol.lastWord(alice))
				alice.runs("carol", time.Second)
				if len(alice.status("carol", v1alpha1.RoleConsumer).Document) == 0 {
					t.Fatal("its word is not kept")
				}
				time.Sleep(time.Second)
				tt.then(alice)
				time.Sleep(tt.after)
				alice.waits("web")
				alice.runs("carol", time.Minute)
				is := alice.status("carol", v1alpha1.RoleConsumer)
				if is.State != tt.state || len(alice.sent) != tt.sent || (len(is.Document) == 0) != (tt.state == "") {
					t.Errorf("sent %v, %+v", alice.sent, is)
				}
			})
		})
	}
}

func TestTheSleeperCountsWhoWokeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, carol := pair(t, 2, 2)
		from := peering.Caller{ID: alice.me.ID()}
		for i := range 3 {
			word := carol.lastWord(alice)
			read, err := wake.Verify(*word)
			if err != nil {
				t.Fatal(err)
			}
			if spent := i == 2; spent != !read.Holds(time.Now()) {
				t.Errorf("the word after %d times is %+v", i, read)
			}
			if err := carol.Answer(t.Context(), from, *word); err != nil {
				t.Fatal(err)
			}
			if err := carol.Answer(t.Context(), from, *word); !errors.Is(err, &peering.Problem{Code: peering.CodeRateLimited}) {
				t.Errorf("twice for one time: %v", err)
			}
			time.Sleep(time.Hour)
		}
		is := carol.status("alice", v1alpha1.RoleProvider)
		if len(is.Times) != 3 || is.Over != 1 || len(carol.news) != 1 || carol.news[0].Reason != api.ReasonTooOften || carol.news[0].Peer != "alice" {
			t.Errorf("%+v, told %+v", is, carol.news)
		}
		for range 100 { // the owner is told once, however often it is said
			time.Sleep(time.Minute)
			if err := carol.Answer(t.Context(), from, *carol.lastWord(alice)); err != nil {
				t.Fatal(err)
			}
		}
		if is := carol.status("alice", v1alpha1.RoleProvider); len(is.Times) != maxTimes || len(carol.news) != 1 {
			t.Errorf("%d times, told %+v", len(is.Times), carol.news)
		}
		time.Sleep(day)
		if read, err := wake.Verify(*carol.lastWord(alice)); err != nil || !read.Holds(time.Now()) {
			t.Errorf("a day later: %+v, %v", read, err)
		}
		_, mallory := pair(t, 2, 2)
		if err := carol.Answer(t.Context(), peering.Caller{ID: mallory.me.ID()}, *carol.lastWord(alice)); !errors.Is(err, &peering.Problem{Code: peering.CodeForbidden}) {
			t.Errorf("another's count: %v", err)
		}
		if carol.LastWord(mallory.me.ID()) != nil || carol.LastWord(identity.ID{}) != nil {
			t.Error("a stranger is told how this machine is woken")
		}
	})
}

func TestTheOwnerIsToldWhenNobodySaysWhoWokeTheMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after map[string]int64
		said, told    bool
		term          int64
		sooner        bool // it is said before this machine knows that it was awake
	}{
		"by its lid":                     {map[string]int64{"eth0": 4}, map[string]int64{"eth0": 4}, false, false, 2, false},
		"by its network":                 {map[string]int64{"eth0": 4}, map[string]int64{"eth0": 5}, false, true, 2, false},
		"by a peer that says so":         {map[string]int64{"eth0": 4}, map[string]int64{"eth0": 5}, true, false, 2, false},
		"by a peer that says so at once": {map[string]int64{"eth0": 4}, map[string]int64{"eth0": 5}, true, false, 2, true},
		"by a device that is new":        {nil, map[string]int64{"eth1": 1}, false, false, 2, false},
		"where nobody may by contract":   {map[string]int64{"eth0": 4}, map[string]int64{"eth0": 5}, false, false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alice, carol := pair(t, tt.term, 2)
				carol.counted = tt.before
				carol.Sleeps()
				time.Sleep(time.Hour)
				carol.counted = tt.after
				if !tt.sooner {
					carol.Woke()
				}
				if tt.said {
					if err := carol.Answer(t.Context(), peering.Caller{ID: alice.me.ID()}, *carol.lastWord(alice)); err != nil {
						t.Error(err)
					}
				}
				if tt.sooner {
					carol.Woke()
				}
				time.Sleep(2 * unsaid)
				synctest.Wait()
				if (len(carol.news) == 1) != tt.told || tt.told && carol.news[0].Reason != api.ReasonByNobody {
					t.Errorf("told %+v", carol.news)
				}
			})
		})
	}
}

// A machine of which one device is armed is woken by that; where none is known to be, by any: firmware may wake it all the same.
func TestWhichDevicesAWordNames(t *testing.T) {
	_, carol := pair(t, 2, 2)
	ctr := carol.client.Now().InForce("alice", v1alpha1.RoleProvider)
	device := func(mac byte, arming wol.Arming) wol.Device {
		return wol.Device{Name: "eth", MAC: []byte{2, 0, 0, 0, 0, mac}, Networks: []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24")}, Arming: arming}
	}
	for what, tt := range map[string]struct {
		devices []wol.Device
		want    string
	}{
		"one of two is armed": {[]wol.Device{device(1, wol.NotArmed), device(2, wol.Armed)}, "02:00:00:00:00:02"},
		"none is":             {[]wol.Device{device(1, wol.NotArmed), device(2, wol.Unknown)}, "02:00:00:00:00:01 02:00:00:00:00:02"},
		"many":                {[]wol.Device{device(1, ""), device(2, ""), device(3, ""), device(4, ""), device(5, "")}, "02:00:00:00:00:01 02:00:00:00:00:02 02:00:00:00:00:03 02:00:00:00:00:04"},
	} {
		var got []string
		for _, d := range carol.word(ctr, 2, tt.devices, time.Now()).Devices {
			got = append(got, d.MAC)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
