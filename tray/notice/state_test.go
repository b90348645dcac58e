package notice

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"kith.dev/core/api"
)

// day is a tray's day: each step is a snapshot some time after the last one.
type day struct {
	t        *testing.T
	m        State
	now      time.Time
	settings Settings
	s        api.Snapshot
	seq      uint64
}

func newDay(t *testing.T) *day {
	d := &day{t: t, now: time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), seq: 100}
	d.s.Status.Engine = api.Engine{Kind: api.EngineBuiltin, State: api.EngineReady}
	d.s.Status.Mode = api.Autonomous
	return d
}

func (d *day) step(after time.Duration, change func(*api.Snapshot), events ...api.Event) Plan {
	d.now = d.now.Add(after)
	if change != nil {
		change(&d.s)
	}
	for i := range events {
		d.seq++
		events[i].Seq = d.seq
	}
	var plan Plan
	d.m, plan = d.m.Next(Input{Now: d.now, Snapshot: clone(d.s), Events: events}, d.settings)
	return plan
}

func (d *day) gone(after time.Duration) Plan {
	d.now = d.now.Add(after)
	var plan Plan
	d.m, plan = d.m.Next(Input{Now: d.now, Gone: true}, d.settings)
	return plan
}

func clone(s api.Snapshot) api.Snapshot {
	s.Peers, s.Requests, s.Guests = slices.Clone(s.Peers), slices.Clone(s.Requests), slices.Clone(s.Guests)
	s.Status.Problems = slices.Clone(s.Status.Problems)
	return s
}

func (d *day) want(p Plan, titles ...string) {
	d.t.Helper()
	var got []string
	for _, n := range p.Show {
		got = append(got, n.Title)
	}
	if !slices.Equal(got, titles) {
		d.t.Errorf("shown %q, want %q", got, titles)
	}
}

func peer(name string, out, in api.State) api.Peer {
	return api.Peer{Name: name, ID: "ID-" + name, Outgoing: out, Incoming: in}
}

func request(id, from string) api.Request {
	return api.Request{ID: id, Peer: from, PeerID: "ID-" + from, Direction: api.Incoming, State: api.StateRequested, Code: "123456",
		Asked: api.Resources{"cpu": "2"}, Granted: api.Resources{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "9Gi"}}
}

func set[T any](to *api.List[T], list ...T) { *to = list }

func TestNothingOldIsToldAtTheStart(t *testing.T) {
	d := newDay(t)
	p := d.step(0, func(s *api.Snapshot) {
		set(&s.Peers, peer("bob", api.StateUnreachable, api.StateNone), peer("carol", api.StateConnected, api.StateConnected))
		set(&s.Requests, request("r1", "dave"))
		set(&s.Guests, api.Guest{Namespace: "shop", Name: "web", Phase: "Refused"})
		set(&s.Status.Problems, api.Problem{Severity: api.SeverityError, What: "the disk is full"})
	}, api.Event{Type: api.EventPeeringEnded, Peer: "erin", ByPeer: true})
	d.want(p)
	d.want(d.step(time.Second, nil))
}

func TestRequestIsToldOnceWithItsButtonsAndTakenBack(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	p := d.step(time.Second, func(s *api.Snapshot) {
		set(&s.Requests, request("r1", "bob"), api.Request{ID: "r2", Peer: "carol", Direction: api.Outgoing, State: api.StateRequested})
	})
	d.want(p, "bob asks to use this laptop")
	n := p.Show[0]
	if n.About != (Subject{Request: "r1", Grants: "cpu 2, memory 4Gi, ephemeral-storage 9Gi"}) || !strings.Contains(n.Body, "It would get cpu 2, memory 4Gi.") || !strings.Contains(n.Body, "123 456") {
		t.Errorf("%+v", n)
	}
	d.want(d.step(time.Second, nil))
	p = d.step(time.Second, func(s *api.Snapshot) { set[api.Request](&s.Requests) })
	d.want(p)
	if !slices.Equal(p.Retract, []string{n.Key}) {
		t.Error(p.Retract)
	}
}

func TestAcceptanceIsToldOnceWithItsCodeAndTakenBack(t *testing.T) {
	d := newDay(t)
	bob := peer("bob", api.StateRequested, api.StateNone)
	d.step(0, func(s *api.Snapshot) { set(&s.Peers, bob) })
	accepted := func(code string, terms ...string) func(*api.Snapshot) {
		return func(s *api.Snapshot) {
			bob.Confirm = &api.Confirmation{Code: code, Terms: terms}
			set(&s.Peers, bob)
		}
	}
	p := d.step(time.Second, accepted("069210"))
	d.want(p, "bob accepted: does bob's screen show 069 210?")
	n := p.Show[0]
	if n.About != (Subject{Peer: "ID-bob", Code: "069210"}) || n.Kind != Confirm || !strings.Contains(n.Body, "069 210") {
		t.Errorf("%+v", n)
	}
	d.want(d.step(time.Second, nil, api.Event{Type: api.EventConfirm, Peer: "bob"})) // the snapshot has said so
	p = d.step(time.Second, accepted("402817"))                                      // asked anew: the old notice is replaced
	d.want(p, "bob accepted: does bob's screen show 402 817?")
	if p.Show[0].Key != n.Key || p.Show[0].About.Code != "402817" {
		t.Errorf("%+v", p.Show[0])
	}
	d.want(d.step(time.Second, accepted("", "cpu costs 0.02 EUR an hour")), "bob accepted: see its terms")
	p = d.step(time.Second, func(s *api.Snapshot) { // confirmed elsewhere, or lapsed
		bob.Confirm = nil
		set(&s.Peers, bob)
	})
	d.want(p)
	if !slices.Equal(p.Retract, []string{n.Key}) {
		t.Error(p.Retract)
	}
	d.settings = d.settings.With(Confirm, false)
	d.want(d.step(time.Minute, accepted("069210")))
}

// While the other owner compares, the code stays on this screen: where else would it be compared with?
func TestCodeStaysUntilTheOtherOwnerConfirmed(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	alice := peer("alice", api.StateNone, api.StateRequested)
	alice.Code = "069210"
	r := request("r1", "alice")
	r.Code = alice.Code
	d.want(d.step(time.Second, func(s *api.Snapshot) { set(&s.Peers, alice); set(&s.Requests, r) }), "alice asks to use this laptop")
	p := d.step(time.Second, func(s *api.Snapshot) { set[api.Request](&s.Requests) })
	d.want(p, "alice is accepted")
	if n := p.Show[0]; !strings.Contains(n.Body, "069 210") || !n.Lasts || n.About != (Subject{}) || !slices.Equal(p.Retract, []string{"request/r1"}) {
		t.Errorf("%+v %v", n, p.Retract)
	}
	d.want(d.step(time.Second, nil))
	alice.Incoming, alice.Code = api.StateContracted, ""
	p = d.step(time.Second, func(s *api.Snapshot) { set(&s.Peers, alice) })
	d.want(p)
	if !slices.Equal(p.Retract, []string{"compare/ID-alice"}) {
		t.Error(p.Retract)
	}
}

func TestRequestThatTheListsDoNotHaveYetIsNotSaidToBeAccepted(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	alice := peer("alice", api.StateNone, api.StateRequested)
	alice.Code = "123456"
	d.want(d.step(time.Second, func(s *api.Snapshot) { set(&s.Peers, alice) }))
	d.want(d.step(time.Second, func(s *api.Snapshot) { set(&s.Requests, request("r1", "alice")) }), "alice asks to use this laptop")
}

// What a yes gives changes while the request waits: the notice on the screen says so, and its button is for what it says.
func TestWhatAYesGivesIsToldAgainWhenItChanges(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	r := request("r1", "bob")
	d.want(d.step(time.Second, func(s *api.Snapshot) { set(&s.Requests, r) }), "bob asks to use this laptop")
	r.Granted = api.Resources{"cpu": "8", "memory": "4Gi", "ephemeral-storage": "9Gi"}
	r.InForce = api.Resources{"cpu": "2", "memory": "4Gi", "ephemeral-storage": "9Gi"}
	p := d.step(time.Minute, func(s *api.Snapshot) { set(&s.Requests, r) })
	d.want(p, "bob asks to change what it uses of this laptop")
	if n := p.Show[0]; n.Key != "request/r1" || n.About.Grants != r.Grants() || !strings.Contains(n.Body, "It would get cpu 2 → 8 (asked 2), memory 4Gi.") {
		t.Errorf("%+v", n)
	}
	d.want(d.step(time.Second, nil))
}

func TestRequestThatIsAskedAnewIsToldWithItsCode(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	r := request("r1", "bob")
	d.want(d.step(time.Second, func(s *api.Snapshot) { set(&s.Requests, r) }), "bob asks to use this laptop")
	r.Code = "069210"
	p := d.step(time.Second, func(s *api.Snapshot) { set(&s.Requests, r) })
	d.want(p, "bob asks to use this laptop")
	if len(p.Show) == 1 && !strings.Contains(p.Show[0].Body, "069 210") {
		t.Error(p.Show[0].Body)
	}
}

// The peer is not blamed for what was taken back here.
func TestRequestThatWasTakenBackIsNotSaidToBeDeclined(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	p := d.step(time.Second, nil, api.Event{Type: api.EventRequestAnswered, Peer: "bob", Direction: api.Outgoing, State: api.StateDeclined,
		Reason: api.ReasonTakenBack, Message: "the request to bob was taken back: the codes differ"})
	d.want(p, "The request to bob was taken back")
	if p.Show[0].Body != "Nothing was signed.\nThe codes differ." {
		t.Errorf("%q", p.Show[0].Body)
	}
}

func TestAnswersOfPeersAreTold(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	p := d.step(time.Second, nil,
		api.Event{Type: api.EventContractSigned, Peer: "bob", Direction: api.Outgoing, Message: "bob grants cpu 2"},
		api.Event{Type: api.EventRequestAnswered, Peer: "carol", Direction: api.Outgoing, State: api.StateDeclined, Message: "the owner of carol declined: not today"},
		api.Event{Type: api.EventRequestAnswered, Peer: "dave", Direction: api.Outgoing, State: api.StateExpired, Message: "nobody answered"},
		api.Event{Type: api.EventRequestAnswered, Peer: "erin", Direction: api.Incoming, State: api.StateExpired},
	)
	d.want(p, "bob accepted your request", "carol declined your request", "dave did not answer", "The request of erin has lapsed")
	if p.Show[0].Body != "Grants cpu 2." || p.Show[1].Body != "Not today." || p.Show[2].Body != "" {
		t.Errorf("%q, %q, %q", p.Show[0].Body, p.Show[1].Body, p.Show[2].Body)
	}
}

// Who consumes is told that it is going to be less, and when that is taken back; not again when it is signed, and not who lowered it himself.
func TestALoweringIsToldOnce(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	d.want(d.step(time.Second, nil, api.Event{Type: api.EventLowering, Peer: "carol", Direction: api.Incoming, Message: "carol is told that what it may use is lowered: cpu 4 → 2"}))
	p := d.step(time.Second, nil, api.Event{Type: api.EventLowering, Peer: "bob", Direction: api.Outgoing, Message: "bob lowers what it grants: cpu 4 → 2, from 2026-03-01 12:00:00 UTC"})
	d.want(p, "bob lowers what it grants")
	if body := p.Show[0].Body; !strings.Contains(body, "4 → 2, from 2026-03-01 12:00:00 UTC") || p.Show[0].Kind != Lowering {
		t.Errorf("%q", body)
	}
	d.want(d.step(time.Hour, nil, api.Event{Type: api.EventContractSigned, Reason: api.ReasonLowered, Peer: "bob", Direction: api.Outgoing, Message: "bob grants cpu 2"},
		api.Event{Type: api.EventContractSigned, Reason: api.ReasonLowered, Peer: "carol", Direction: api.Incoming, Message: "carol may use cpu 2"}))
	d.want(d.step(time.Hour, nil, api.Event{Type: api.EventLowering, Reason: api.ReasonTakenBack, Peer: "bob", Direction: api.Outgoing, Message: "bob does not lower what it grants after all: 4 cpu"}),
		"bob does not lower what it grants")
}

func TestOwnAnswersAreNotTold(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	d.want(d.step(time.Second, nil, api.Event{Type: api.EventRequestAnswered, Peer: "bob", Direction: api.Incoming, State: api.StateContracted}))
	d.want(d.step(2*time.Second, nil, api.Event{Type: api.EventContractSigned, Peer: "bob", Direction: api.Incoming, Message: "bob may use cpu 2"}))
	d.want(d.step(time.Second, nil, api.Event{Type: api.EventRequestAnswered, Peer: "carol", Direction: api.Incoming, State: api.StateDeclined}))
	d.want(d.step(time.Hour, nil, api.Event{Type: api.EventContractSigned, Peer: "dave", Direction: api.Incoming, Message: "dave may use cpu 2"}),
		"dave was accepted by your sharing policy")
}

func TestPeerLostAndBack(t *testing.T) {
	d := newDay(t)
	with := func(out, in api.State) func(*api.Snapshot) {
		return func(s *api.Snapshot) {
			p := peer("bob", out, in)
			p.Pods.Abroad, p.Why = 3, "it does not answer"
			set(&s.Peers, p)
		}
	}
	d.step(0, with(api.StateConnected, api.StateConnected))
	// For a moment: its daemon was started anew.
	d.want(d.step(time.Second, with(api.StateUnreachable, api.StateConnected)))
	d.want(d.step(time.Second, with(api.StateConnected, api.StateConnected)))
	d.want(d.step(time.Second, with(api.StateUnreachable, api.StateConnected)))
	if at := d.m.Wake(d.now); at.Sub(d.now) != lostPatience {
		t.Error("nobody looks again:", at)
	}
	lost := d.step(lostPatience, with(api.StateUnreachable, api.StateConnected))
	d.want(lost, "bob cannot be reached")
	if lost.Show[0].Body != "3 pods of yours run there.\nIt does not answer." {
		t.Errorf("%q", lost.Show[0].Body)
	}
	d.want(d.step(time.Second, with(api.StateUnreachable, api.StateUnreachable)))
	back := d.step(time.Minute, with(api.StateConnected, api.StateConnected))
	d.want(back, "bob is back")
	if back.Show[0].Key != lost.Show[0].Key {
		t.Error("the one does not take the place of the other")
	}
	d.want(d.step(time.Second, with(api.StateNone, api.StateNone)))
	d.want(d.step(time.Second, with(api.StateRequested, api.StateNone)))
	d.want(d.step(time.Second, with(api.StateConnected, api.StateNone)))
}

func TestPeerLostWhileTheEngineIsAwayWaitsForIt(t *testing.T) {
	d := newDay(t)
	state := func(s api.State) func(*api.Snapshot) {
		return func(n *api.Snapshot) { n.Peers = []api.Peer{{ID: "B", Name: "bob", Outgoing: s}} }
	}
	engine := func(s api.EngineState) func(*api.Snapshot) {
		return func(n *api.Snapshot) { n.Status.Engine.State = s }
	}
	d.want(d.step(0, state(api.StateConnected)))
	d.want(d.step(time.Second, state(api.StateUnreachable)))
	d.want(d.step(time.Second, engine(api.EngineStarting)))
	if at := d.m.Wake(d.now); !at.IsZero() {
		t.Errorf("it looks again at %s, and knows nothing more until the engine is back", at)
	}
	d.want(d.step(time.Minute, engine(api.EngineReady)), "bob cannot be reached")
}

func TestRestartOfTheDaemonIsNoNews(t *testing.T) {
	d := newDay(t)
	all := func(state api.State) func(*api.Snapshot) {
		return func(s *api.Snapshot) {
			s.Status.Engine.State = api.EngineReady
			set(&s.Peers, peer("bob", state, api.StateNone))
			set(&s.Requests, request("r1", "carol"))
		}
	}
	d.step(0, all(api.StateConnected))
	d.want(d.gone(time.Second))
	d.want(d.gone(5 * time.Second))
	d.want(d.step(time.Second, func(s *api.Snapshot) {
		s.Status.Engine.State = api.EngineStarting
		set(&s.Peers, peer("bob", api.StateNone, api.StateNone))
		set[api.Request](&s.Requests)
	}))
	d.want(d.step(time.Second, all(api.StateUnreachable)))
	if at := d.m.Wake(d.now); at.IsZero() || at.Sub(d.now) > calm {
		t.Error("nobody looks again:", at)
	}
	d.want(d.step(time.Second, all(api.StateConnected)))
	d.want(d.step(calm, nil))
	// But one that stays away is told, when there was time enough to find it.
	d.gone(time.Second)
	d.want(d.step(time.Second, all(api.StateUnreachable)))
	d.want(d.step(calm+time.Second, nil))
	d.want(d.step(lostPatience, nil), "bob cannot be reached")
}

func TestDaemonThatStaysAwayIsToldOnce(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	d.want(d.gone(time.Second))
	if at := d.m.Wake(d.now); at.Sub(d.now) != gonePatience {
		t.Error("nobody looks again:", at)
	}
	d.want(d.gone(gonePatience), "Kith's daemon does not answer")
	d.want(d.gone(time.Minute))
	p := d.step(time.Second, nil)
	d.want(p)
	if !slices.Equal(p.Retract, []string{keyDaemon}) {
		t.Error(p.Retract)
	}
	never := newDay(t)
	never.want(never.gone(0))
	never.want(never.gone(time.Hour)) // it was so when the tray started
}

func TestTroubleIsToldOnceThoughItsNumbersMove(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	full := func(left int) func(*api.Snapshot) {
		return func(s *api.Snapshot) {
			s.Status.Engine.State, s.Status.Engine.Why = api.EngineDegraded, fmt.Sprintf("%d MiB are left", left)
			set(&s.Status.Problems, api.Problem{Severity: api.SeverityError, What: fmt.Sprintf("bob was refused %d times", left)},
				api.Problem{Severity: api.SeverityWarning, What: "the clock is off"})
		}
	}
	well := func(s *api.Snapshot) { s.Status.Engine.State, s.Status.Problems = api.EngineReady, nil }
	d.want(d.step(time.Second, full(9)), "The local Kubernetes is not well", "Bob was refused 9 times")
	d.want(d.step(time.Second, full(8)))
	p := d.step(time.Second, well)
	slices.Sort(p.Retract)
	if !slices.Equal(p.Retract, []string{"engine/degraded", "problem/bob was refused # times"}) {
		t.Error(p.Retract)
	}
	d.want(d.step(time.Second, full(7)))
	d.step(time.Second, well)
	d.want(d.step(troubleAgain, full(7)), "The local Kubernetes is not well", "Bob was refused 7 times")
}

func TestEndByTheOtherSideIsToldOnceForBothDirections(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	ended := func(peer string, dir api.Direction, byPeer bool) api.Event {
		return api.Event{Type: api.EventPeeringEnded, Peer: peer, Direction: dir, ByPeer: byPeer}
	}
	d.want(d.step(time.Second, nil, ended("bob", api.Outgoing, true)), "bob ended the contract")
	d.want(d.step(time.Second, nil, ended("bob", api.Incoming, true)))
	d.want(d.step(time.Second, nil, ended("carol", api.Incoming, false)))
	d.want(d.step(time.Hour, nil, ended("bob", api.Incoming, true)), "bob ended the contract")
}

func TestEventsAreTakenOnce(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	e := api.Event{Type: api.EventTetherMade, Peer: "corp", Message: "the cluster of corp decides what runs here"}
	d.want(d.step(time.Second, nil, e), "Tethered to corp")
	d.seq-- // the same again, as after the stream was opened anew
	d.want(d.step(time.Second, nil, e))
}

func TestATetherIsToldToTheLaptop(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	of := func(kind api.EventType, text string) api.Event {
		return api.Event{Type: kind, Peer: "corp", Message: text}
	}
	body := func(p Plan, title, want string) {
		t.Helper()
		if d.want(p, title); len(p.Show) == 1 && p.Show[0].Body != want {
			t.Errorf("%s: %q, want %q", title, p.Show[0].Body, want)
		}
	}
	tethered := func(s *api.Snapshot) {
		s.Status.Mode, s.Status.Tether = api.Tethered, &api.Tether{Peer: "corp"}
		set(&s.Peers, api.Peer{Name: "corp", ID: "C", Incoming: api.StateConnected, Tether: &api.PeerTether{Role: api.Laptop, Step: "tethered"}})
	}
	body(d.step(time.Second, tethered, api.Event{Type: api.EventContractSigned, Peer: "corp", Direction: api.Incoming, Message: "corp gets cpu 2"},
		of(api.EventTetherMade, "the cluster of corp decides what runs here, and answers kubectl")),
		"Tethered to corp", "The cluster of corp decides what runs here, and answers kubectl.")
	body(d.step(time.Hour, func(s *api.Snapshot) {
		tethered(s)
		s.Peers[0].Incoming, s.Peers[0].Reachable = api.StateUnreachable, false
	}, of(api.EventTetherLost, "tethered to corp, which has not answered since 10:00:00 on 1 March: …")),
		"corp cannot be reached, which runs this laptop", "What it runs here runs on.\n“Untether” in the menu takes this laptop back.")
	d.want(d.step(time.Minute, nil)) // told once
	body(d.step(time.Minute, tethered, because(api.ReasonAnswersAgain, of(api.EventTetherMade, "corp answers again"))), "corp answers again", "All is as before: its cluster decides what runs here.")
	body(d.step(time.Hour, nil, api.Event{Type: api.EventPeeringEnded, Peer: "corp", Direction: api.Incoming, ByPeer: true},
		of(api.EventTetherEnded, "this laptop decides again what it runs")), "Untethered from corp", "This laptop decides again what it runs.")
	body(d.step(time.Hour, nil, because(api.ReasonUntethered, of(api.EventTetherEnded, "untethered from corp: corp ended it; ended here, as corp had not taken them away: web-0"))),
		"Untethered from corp", "Corp ended it; ended here, as corp had not taken them away: web-0.")
	body(d.step(time.Hour, nil, because(api.ReasonNotTethered, of(api.EventTetherEnded, "not tethered to corp: its owner declined"))), "Not tethered to corp", "Its owner declined.")
}

func TestATetherIsToldToTheCompany(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	runs := func(s *api.Snapshot) {
		set(&s.Peers, api.Peer{Name: "alice", ID: "A", Outgoing: api.StateConnected, Tether: &api.PeerTether{Role: api.Company, Step: "tethered"}})
	}
	signed := api.Event{Type: api.EventContractSigned, Peer: "alice", Direction: api.Outgoing, Message: "alice grants cpu 2"}
	made := api.Event{Type: api.EventLaptopTethered, Peer: "alice", Message: "the laptop alice is tethered to this cluster: it is the node kith-alice here"}
	p := d.step(time.Second, runs, signed, made)
	if d.want(p, "alice is tethered to this cluster"); p.Show[0].Body != "It is the node kith-alice here." {
		t.Errorf("%q", p.Show[0].Body)
	}
	d.want(d.step(time.Hour, nil, api.Event{Type: api.EventLaptopReturned, Peer: "alice", Message: "the laptop alice is its owner's again"}), "alice is its owner's again")
	asks := api.Request{ID: "r", Peer: "bob", PeerID: "B", Direction: api.Incoming, State: api.StateRequested, Code: "069210", Tether: true, Means: "this cluster runs it; its users work in team-a (edit)"}
	p = d.step(time.Second, func(s *api.Snapshot) { set(&s.Requests, asks) })
	if d.want(p, "bob asks this cluster to run it"); !strings.HasPrefix(p.Show[0].Body, "With a yes this cluster runs it; its users work in team-a (edit).") || !strings.Contains(p.Show[0].Body, "Code 069 210") {
		t.Errorf("%q", p.Show[0].Body)
	}
}

// Whoever changes what is shared, by the tray, a command or kubectl, the person at the screen sees what it was and can take it back.
func TestAChangeOfSharingIsToldOldAndNew(t *testing.T) {
	d := newDay(t)
	policy := func(name string, change func(p *api.Policy)) func(*api.Snapshot) {
		return func(s *api.Snapshot) {
			for i := range s.Policies {
				if s.Policies[i].Name == name {
					change(&s.Policies[i])
				}
			}
		}
	}
	d.step(0, func(s *api.Snapshot) {
		s.Status.Engine.State = api.EngineStarting
		set(&s.Policies)
	})
	d.want(d.step(time.Second, func(s *api.Snapshot) {
		s.Status.Engine.State = api.EngineReady
		set(&s.Policies, api.Policy{Name: "default", Amounts: api.ShareOf("50%")}, api.Policy{Name: "family", Amounts: api.Resources{"cpu": "2"}})
	}))
	p := d.step(time.Second, policy("default", func(p *api.Policy) { p.Amounts = api.ShareOf("0%") }))
	d.want(p, "Sharing: 50 % → nothing")
	n := p.Show[0]
	yes, no := n.About.buttons()
	if yes != "Undo" || no != "" || n.About.waits() || n.About.Change.Was.Amounts["cpu"] != "50%" || n.About.Change.Is.Amounts["cpu"] != "0%" || n.Body != "What was signed stays." {
		t.Errorf("%+v", n)
	}
	d.want(d.step(time.Second, policy("default", func(p *api.Policy) { p.Notes = []string{"it gives nothing"} })))
	p = d.step(time.Minute, policy("family", func(p *api.Policy) { p.Amounts = api.Resources{"cpu": "4", "memory": "4Gi"}; p.AutoAccept = true }))
	d.want(p, "What is shared has changed")
	if want := "It is the policy family.\nCpu 2 → 4, memory 0 → 4Gi, requests are accepted without asking.\nWhat was signed stays."; p.Show[0].Body != want {
		t.Errorf("%q", p.Show[0].Body)
	}
	for range 6 { // many at once are one notice, still with its button
		p = d.step(time.Second, policy("default", func(p *api.Policy) { p.Paused = !p.Paused }))
		if len(p.Show) != 1 || p.Show[0].About.Change == nil || p.Show[0].Key != n.Key {
			t.Errorf("%+v", p.Show)
		}
	}
	d.settings = d.settings.With(Sharing, false)
	d.want(d.step(time.Minute, policy("default", func(p *api.Policy) { p.Amounts = api.ShareOf("75%") })))
}

func TestGuestsRefusedAreTold(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	web := api.Guest{Namespace: "shop", Name: "web", Consumer: "bob", Phase: "Refused", Why: "beyond the contract"}
	p := d.step(time.Second, func(s *api.Snapshot) { set(&s.Guests, web) })
	d.want(p, "A pod of bob was refused")
	if p.Show[0].Body != "web does not run here.\nBeyond the contract." {
		t.Errorf("%q", p.Show[0].Body)
	}
	d.want(d.step(time.Second, nil))
}

func TestMutedKindsAreNotShown(t *testing.T) {
	d := newDay(t)
	d.settings = Settings{}.With(Request, false)
	d.step(0, nil)
	d.want(d.step(time.Second, func(s *api.Snapshot) { set(&s.Requests, request("r1", "bob")) }))
	d.settings = d.settings.With(Request, true)
	d.want(d.step(time.Second, nil)) // it is not new any more
	d.want(d.step(time.Second, func(s *api.Snapshot) { s.Requests = append(s.Requests, request("r2", "carol")) }), "carol asks to use this laptop")
}

func TestManyComeAsOne(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	ask := func(from, to int) func(*api.Snapshot) {
		return func(s *api.Snapshot) {
			for i := from; i <= to; i++ {
				s.Requests = append(s.Requests, request(fmt.Sprint("r", i), fmt.Sprint("peer", i)))
			}
		}
	}
	d.want(d.step(time.Second, ask(1, 2)), "peer1 asks to use this laptop", "peer2 asks to use this laptop")
	d.want(d.step(time.Second, ask(3, 3)), "peer3 asks to use this laptop")
	d.want(d.step(time.Second, ask(4, 4)), "peer4 asks to use this laptop")
	p := d.step(time.Second, ask(5, 20))
	d.want(p, "17 more requests wait for your answer")
	if p.Show[0].Body != "peer4, peer5, peer6, peer7 and 13 more.\nAccept or decline in Kith's menu." || p.Show[0].About != (Subject{}) {
		t.Errorf("%+v", p.Show[0])
	}
	if !slices.Equal(p.Retract, []string{"request/r4"}) {
		t.Error("the fourth is shown twice:", p.Retract)
	}
	p = d.step(time.Minute, func(s *api.Snapshot) { set[api.Request](&s.Requests) })
	if !slices.Contains(p.Retract, "many/request") || !slices.Contains(p.Retract, "request/r1") {
		t.Error(p.Retract)
	}
	d.want(d.step(time.Minute, ask(30, 30)), "peer30 asks to use this laptop")
	// All at once, as when the network goes.
	var peers, gone []api.Peer
	for i := range 5 {
		peers = append(peers, peer(fmt.Sprint("p", i), api.StateConnected, api.StateNone))
		gone = append(gone, peer(fmt.Sprint("p", i), api.StateUnreachable, api.StateNone))
	}
	d.step(time.Second, func(s *api.Snapshot) { s.Peers = peers })
	d.want(d.step(time.Second, func(s *api.Snapshot) { s.Peers = gone }))
	p = d.step(lostPatience, nil)
	d.want(p, "5 peers cannot be reached")
	if p.Show[0].Body != "p0, p1, p2, p3 and 1 more." {
		t.Errorf("%q", p.Show[0].Body)
	}
}

func TestNextLeavesTheOldMemoryAlone(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	before := d.m
	ask := func(s *api.Snapshot) { set(&s.Requests, request("r1", "bob")) }
	first := d.step(time.Second, ask)
	d.m = before
	if second := d.step(0, ask); len(second.Show) != 1 || second.Show[0] != first.Show[0] {
		t.Errorf("%+v, then %+v", first, second)
	}
}

func TestARenewalIsNoNews(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	for _, direction := range []api.Direction{api.Outgoing, api.Incoming} {
		d.want(d.step(time.Hour, nil, api.Event{Type: api.EventContractSigned, Reason: api.ReasonRenewed, Peer: "bob", Direction: direction}))
	}
}

func TestGuestsThatStoodStillAreToldOnceADay(t *testing.T) {
	d := newDay(t)
	still := api.Event{Type: api.EventStoodStill, Message: "3 pods of bob stood still for 42 min, while this laptop slept"}
	with := func(guests int, awake *api.Awake) func(*api.Snapshot) {
		return func(s *api.Snapshot) { s.Status.Counts.Guests, s.Status.Awake = guests, awake }
	}
	d.step(0, with(3, &api.Awake{}))
	p := d.step(time.Minute, nil, still)
	d.want(p, "Guests stood still while it slept")
	if n := p.Show[0]; !strings.HasPrefix(n.Body, "3 pods of bob stood still for 42 min") || n.About != (Subject{Awake: true}) || n.Lasts {
		t.Errorf("%+v", n)
	}
	d.want(d.step(time.Hour, nil, still))
	p = d.step(time.Minute, with(3, &api.Awake{Kept: true}))
	if !slices.Contains(p.Retract, keySlept) {
		t.Error("it asks whether to keep awake what is:", p.Retract)
	}
	d.want(d.step(24*time.Hour, nil, still)) // it was put to sleep all the same
	d.want(d.step(time.Minute, with(3, nil), still))
	d.want(d.step(time.Minute, with(3, &api.Awake{})))
	d.want(d.step(48*time.Hour, nil, still), "Guests stood still while it slept")
	if p = d.step(time.Minute, with(0, &api.Awake{})); !slices.Contains(p.Retract, keySlept) {
		t.Error("it asks whether to keep it awake for nobody:", p.Retract)
	}
}

func TestItIsSaidWhyItIsKeptAwakeNoMore(t *testing.T) {
	for _, c := range []struct {
		reason api.EventReason
		guests int
		told   bool
	}{
		{api.ReasonByOwner, 2, false}, {api.ReasonGuestsEnded, 0, false}, {api.ReasonTimeIsUp, 0, false}, {api.ReasonTimeIsUp, 1, true},
		{api.ReasonBatteryLow, 2, true}, {api.ReasonNoLogind, 2, true}, {"", 2, false},
	} {
		d := newDay(t)
		d.step(0, func(s *api.Snapshot) { s.Status.Counts.Guests, s.Status.Awake = c.guests, &api.Awake{} })
		p := d.step(time.Minute, nil, api.Event{Type: api.EventMaySleep, Reason: c.reason, Message: "this laptop may sleep again: its battery is low"})
		if len(p.Show) > 0 != c.told || c.told && p.Show[0].Body != "Its battery is low." {
			t.Errorf("%+v: %+v", c, p.Show)
		}
	}
}

// What is told often enough waits; what is so by then is told, and the newest of it.
func TestWhatIsToldOftenEnoughWaits(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	ask := func(id string) func(*api.Snapshot) {
		return func(s *api.Snapshot) { set(&s.Requests, request(id, "bob")) }
	}
	for i := range 3 {
		d.want(d.step(time.Minute, ask(fmt.Sprint("r", i))), "bob asks to use this laptop")
	}
	d.want(d.step(time.Minute, ask("r3")))
	d.want(d.step(time.Minute, ask("r4")))
	at := d.m.Wake(d.now)
	if wait := at.Sub(d.now); wait <= 0 || wait > 2*time.Hour {
		t.Fatalf("nobody looks again: %s", at)
	}
	p := d.step(at.Sub(d.now), nil)
	d.want(p, "bob asks to use this laptop")
	if p.Show[0].About.Request != "r4" {
		t.Errorf("the question that is over is told: %+v", p.Show[0])
	}
	d.want(d.step(time.Minute, ask("r5")))
	d.want(d.step(time.Minute, func(s *api.Snapshot) { s.Requests = nil }))
	if at := d.m.Wake(d.now); !at.IsZero() {
		t.Error("what is over waits:", at)
	}
	d.want(d.step(2*time.Hour, nil))
	d.want(d.step(2*time.Hour, func(s *api.Snapshot) { set(&s.Requests, request("r6", "carol"), request("r7", "bob")) }),
		"carol asks to use this laptop", "bob asks to use this laptop")
}

// The code of somebody whom the owner accepted just now is looked for at this moment, whoever else asks how often.
func TestTheCodeToCompareNeverWaits(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	for i := range 40 {
		d.step(40*time.Second, func(s *api.Snapshot) {
			s.Requests = append(s.Requests, request(fmt.Sprint("r", i), fmt.Sprint("p", i)))
		})
	}
	d.want(d.step(time.Minute, func(s *api.Snapshot) {
		bob := peer("p39", api.StateNone, api.StateRequested)
		bob.Code = "123456"
		set(&s.Peers, bob)
		s.Requests = s.Requests[:39]
	}), "p39 is accepted")
}

func TestManyPeersThatAreAwayAreTakenBackWithTheLast(t *testing.T) {
	for _, muted := range []bool{false, true} {
		d := newDay(t)
		d.settings = Settings{}.With(PeerBack, !muted)
		all := func(state api.State, names ...string) func(*api.Snapshot) {
			return func(s *api.Snapshot) {
				for i := range s.Peers {
					if slices.Contains(names, s.Peers[i].Name) {
						s.Peers[i].Outgoing = state
					}
				}
			}
		}
		names := []string{"p0", "p1", "p2", "p3", "p4"}
		d.step(0, func(s *api.Snapshot) {
			for _, name := range names {
				s.Peers = append(s.Peers, peer(name, api.StateConnected, api.StateNone))
			}
		})
		d.step(time.Second, all(api.StateUnreachable, names...))
		d.want(d.step(lostPatience, nil), "5 peers cannot be reached")
		if p := d.step(time.Minute, all(api.StateConnected, names[:4]...)); slices.Contains(p.Retract, "many/peerLost") {
			t.Errorf("muted %v: one is away, and it is taken back: %q", muted, p.Retract)
		}
		if p := d.step(time.Minute, all(api.StateConnected, "p4")); !slices.Contains(p.Retract, "many/peerLost") {
			t.Errorf("muted %v: all are back, and it stays: %q", muted, p.Retract)
		}
	}
}

// A colleague who closed the lid is no news where nothing runs there.
func TestWhoSleepsIsMissedForPodsAlone(t *testing.T) {
	for _, pods := range []int{0, 2} {
		d := newDay(t)
		with := func(state api.State) func(*api.Snapshot) {
			return func(s *api.Snapshot) {
				p := peer("bob", state, api.StateNone)
				p.Pods.Abroad, p.Suspended = pods, state == api.StateUnreachable
				set(&s.Peers, p)
			}
		}
		d.step(0, with(api.StateConnected))
		d.step(time.Second, with(api.StateUnreachable))
		lost, back := d.step(time.Minute, nil), d.step(time.Hour, with(api.StateConnected))
		if len(lost.Show) != min(pods, 1) || len(back.Show) != len(lost.Show) {
			t.Errorf("with %d pods: %+v, then %+v", pods, lost.Show, back.Show)
		}
	}
}

func TestEveryKindHasWords(t *testing.T) {
	for _, k := range Kinds {
		if k.Label == "" || !strings.Contains(k.many, "%s") {
			t.Errorf("%s has no label, or no title for many", k.Kind)
		}
	}
}

func TestHostileNamesAreHarmless(t *testing.T) {
	for _, who := range []string{"<b>bob</b>\n\x1b[31m", "\u202Ebob", strings.Repeat("é", 300), "שלום", "👩\u200D💻", ""} {
		d := newDay(t)
		d.step(0, nil)
		p := d.step(time.Second, func(s *api.Snapshot) {
			r := request("r1", who)
			r.Asked, r.Granted = api.Resources{who: who}, api.Resources{who: who}
			set(&s.Requests, r)
			set(&s.Guests, api.Guest{Namespace: who, Name: who, Consumer: who, Phase: "Refused", Why: who})
			s.Status.Engine.State, s.Status.Engine.Why = api.EngineDegraded, who
		}, api.Event{Type: api.EventPeeringEnded, Peer: who, ByPeer: true, Message: who})
		if len(p.Show) != 4 {
			t.Errorf("%d notices of %q", len(p.Show), who)
		}
		for _, n := range p.Show {
			if strings.ContainsAny(n.Title+n.Body, "\x1b\u202E\r") || strings.Contains(n.Title, "\n") || strings.Count(n.Body, "\n") > 1 ||
				utf8.RuneCountInString(n.Title) > 120 || utf8.RuneCountInString(n.Body) > 300 {
				t.Errorf("%q gives %q, %q", who, n.Title, n.Body)
			}
		}
	}
}

func because(reason api.EventReason, e api.Event) api.Event {
	e.Reason = reason
	return e
}
