package notice

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"kith.dev/core/api"
)

// What is told seldom must not hold back something else of the same peer.
func TestAYesIsToldAfterQuestionsThatLapsed(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	lapsed := api.Event{Type: api.EventRequestAnswered, Peer: "bob", Direction: api.Outgoing, State: api.StateExpired}
	d.want(d.step(time.Minute, nil, lapsed), "bob did not answer")
	d.want(d.step(time.Minute, nil, api.Event{Type: api.EventContractSigned, Peer: "bob", Direction: api.Outgoing, Message: "bob grants cpu 2"}), "bob accepted your request")
	for range 2 { // the company comes and goes, and is lost then
		d.step(time.Minute, nil, api.Event{Type: api.EventTetherMade, Reason: api.ReasonAnswersAgain, Peer: "acme"})
		d.step(time.Minute, nil, api.Event{Type: api.EventTetherEnded, Peer: "acme"})
	}
	d.want(d.step(time.Minute, nil, api.Event{Type: api.EventTetherLost, Peer: "acme"}), "acme cannot be reached, which runs this laptop")
}

func TestAPeerThatWasForgottenIsMissedAnew(t *testing.T) {
	d := newDay(t)
	bob := func(is api.State) func(*api.Snapshot) {
		return func(s *api.Snapshot) { set(&s.Peers, peer("bob", is, api.StateNone)) }
	}
	d.step(0, bob(api.StateConnected))
	d.step(time.Second, bob(api.StateUnreachable))
	d.want(d.step(lostPatience, nil), "bob cannot be reached")
	if p := d.step(time.Minute, func(s *api.Snapshot) { s.Peers = nil }); !slices.Contains(p.Retract, "reach/ID-bob") {
		t.Errorf("it is still said to be away: %q", p.Retract)
	}
	d.step(time.Minute, bob(api.StateConnected))
	d.step(time.Minute, bob(api.StateUnreachable))
	d.want(d.step(lostPatience, nil), "bob cannot be reached")
}

// A trouble that went while it waited was never told, and is news when it is back and stays.
func TestATroubleThatWaitedIsToldWhenItIsBack(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	full := func(s *api.Snapshot) {
		set(&s.Status.Problems, api.Problem{Severity: api.SeverityError, What: "the disk is full"})
	}
	well := func(s *api.Snapshot) { s.Status.Problems = nil }
	for range 2 {
		d.want(d.step(troubleAgain, full), "The disk is full")
		d.want(d.step(time.Minute, well))
	}
	d.want(d.step(troubleAgain, full)) // often enough
	d.want(d.step(time.Minute, well))
	d.want(d.step(time.Minute, full)) // and it stays
	at := d.m.Wake(d.now)
	if at.IsZero() {
		t.Fatal("nobody looks again")
	}
	d.want(d.step(at.Sub(d.now), nil), "The disk is full")
}

func guest(i int) api.Guest {
	return api.Guest{Namespace: "m", Name: fmt.Sprint("web-", i), Consumer: "mallory", ConsumerID: "ID-mallory", Phase: phaseRefused}
}

// A peer whose pods are refused by the hundred pushes out nothing else that waits, and what is gone by then is not told.
func TestAFloodPushesOutNothingElse(t *testing.T) {
	d := newDay(t)
	d.step(0, nil)
	for i := range 3 {
		d.step(time.Minute, func(s *api.Snapshot) { set(&s.Requests, request(fmt.Sprint("r", i), "bob")) })
	}
	d.want(d.step(time.Minute, func(s *api.Snapshot) { set(&s.Requests, request("r3", "bob")) })) // it waits
	for i := range 4 * mostHeld {
		d.step(time.Second, func(s *api.Snapshot) { s.Guests = append(s.Guests, guest(i)) })
	}
	if n := len(d.m.held); n != mostHeld+1 {
		t.Errorf("%d wait", n)
	}
	if _, waits := d.m.held["request/r3"]; !waits {
		t.Error("a request was pushed out by pods that were refused")
	}
	if _, waits := d.m.held[fmt.Sprint("refused/m/web-", 4*mostHeld-1)]; !waits {
		t.Error("the newest was pushed out")
	}
	d.step(time.Second, func(s *api.Snapshot) { s.Guests = nil })
	d.want(d.step(3*time.Hour, nil), "bob asks to use this laptop")
}
