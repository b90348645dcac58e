package gateway

import "time"

// A tunnel that carries nothing any more looks well for three minutes: as long as a session lasts, and a host that only
// listens hears nothing of its peer for as long. So with the looks at the host that are taken anyway (resync) one is taken
// at what came of each peer, and where that was nothing since the look before, the peer's gateway is asked for an answer.

// unheard is how many looks in a row nothing came although it was asked for, until a tunnel counts as down: after 45 s to a
// minute. Looks are counted, not seconds: a process that was stopped asks before it says so.
const unheard = 3

// liveness is what was heard of one peer.
type liveness struct {
	received uint64    // bytes at the last look that saw more than the one before
	heard    time.Time // that look
	looked   time.Time // the last that counted
	misses   int       // looks since, in which nothing was new
}

// note takes in how many bytes came by now.
func (l *liveness) note(received uint64, now time.Time) {
	if received != l.received || l.heard.IsZero() {
		*l = liveness{received: received, heard: now, looked: now}
	}
}

// observe is note for one of the looks that are resync apart, and reports whether to ask the peer for an answer.
func (l *liveness) observe(received uint64, now time.Time) (ask bool) {
	l.note(received, now)
	if now.Sub(l.looked) < resync*9/10 {
		return false
	}
	l.looked = now
	l.misses++
	return true
}

func (l *liveness) silent() bool { return l.misses >= unheard }
