package presence

import "time"

// Grace is something that is done, or said, only when a presence has lasted for a while.
type Grace int

// The graces.
const (
	Node    Grace = iota // a peer that hangs is found after 11 s, so that its node is NotReady within 15 s; and a daemon has time to start anew
	Home                 // just after a start no consumer was contacted yet
	Company              // a moment is not worth a word
	Tunnel               // the first handshake takes a moment
)

// start is what a grace counts from, for people, and when that was of a presence; no grace runs where there is none.
type start struct {
	what string
	of   func(Presence) (at time.Time, is bool)
}

var (
	lastHeard = start{"its last sign of life; at once when that was that it goes to sleep", func(p Presence) (time.Time, bool) {
		if p.State == Suspended {
			return time.Time{}, true
		}
		return p.Heard, !p.Works()
	}}
	lost = start{"when it was found unreachable", func(p Presence) (time.Time, bool) { return p.Since, !p.Reachable() }}
	met  = start{"when it was reached", func(p Presence) (time.Time, bool) { return p.Since, p.Reachable() }}
)

// graces is the whole table; docs/architecture.md shows it under "When a peer is gone".
var graces = [...]struct {
	what  string
	after time.Duration
	from  start
}{
	Node:    {"its node here is NotReady, and pods there are not Ready", 12 * time.Second, lastHeard},
	Home:    {"endpoints at home are not ready in its twins here, unless home answers through the tunnel", 3 * time.Second, lost},
	Company: {"the company that this laptop is tethered to counts as away", 3 * time.Second, lost},
	Tunnel:  {"the tunnel to it counts as down, if nothing came through it", 15 * time.Second, met},
}

// Left is how long a grace still takes, which is over when it is nothing or less. False: none runs. The zero time is long ago.
func (g Grace) Left(p Presence, now time.Time) (left time.Duration, runs bool) {
	at, runs := graces[g].from.of(p)
	return graces[g].after - now.Sub(at), runs
}

// Over reports whether a grace ran, and is over.
func (g Grace) Over(p Presence, now time.Time) bool {
	left, runs := g.Left(p, now)
	return runs && left <= 0
}
