package gateway

import (
	"testing"
	"time"
)

func TestATunnelIsDownAfterThreeLooksWithoutAnAnswer(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * resync) }
	var l liveness
	is := func(when time.Time, received uint64, ask, silent bool) {
		t.Helper()
		if got := l.observe(received, when); got != ask || l.silent() != silent {
			t.Errorf("at %s: asks %v, silent %v; want %v, %v", when.Sub(start), got, l.silent(), ask, silent)
		}
	}
	is(at(0), 0, false, false) // the first look only begins
	is(at(1), 0, true, false)
	is(at(2), 100, false, false) // the answer
	is(at(3), 100, true, false)
	is(at(3).Add(time.Second), 100, false, false) // an event on this host is no look
	is(at(4), 100, true, false)
	is(at(5), 100, true, true)
	is(at(6), 100, true, true)
	is(at(7), 180, false, false) // there it is again
	// A process that stood still for an hour asks before it says anything.
	is(at(247), 180, true, false)
	is(at(248), 260, false, false)
}

func TestWhyATunnelIsDown(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for want, s := range map[string]Stats{
		"":                                 {Up: true},
		"no handshake since kithd started": {},
		"no device here":                   {Off: "no device here"},
		"no answer for 48 s":               {LastHandshake: now.Add(-time.Minute), Heard: now.Add(-48 * time.Second)},
		"no handshake for 5 min":           {LastHandshake: now.Add(-5 * time.Minute), Heard: now.Add(-4 * time.Minute)},
	} {
		if got := s.Why(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
