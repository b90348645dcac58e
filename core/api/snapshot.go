package api

import (
	"regexp"
	"slices"
	"time"
)

// Snapshot is all that a desktop shows, as of one moment. While there is no cluster the lists that come out of it are
// empty and Status.Engine says why.
type Snapshot struct {
	Status   Status        `json:"status"`
	Peers    List[Peer]    `json:"peers"`
	Requests List[Request] `json:"requests"` // pending, both directions, oldest first
	Policies List[Policy]  `json:"policies"`
	Guests   List[Guest]   `json:"guests"`
}

// Steady is s without what changes all the time: times seen, bytes, round trips, and the numbers in sentences
// ("no handshake for 40 s"). Two snapshots whose Steady is equal differ in nothing that somebody must be told about.
// s itself is left alone.
func (s Snapshot) Steady() Snapshot {
	s.Status.Problems, s.Status.Waiting = slices.Clone(s.Status.Problems), slices.Clone(s.Status.Waiting)
	for _, list := range []List[Problem]{s.Status.Problems, s.Status.Waiting} {
		for i := range list {
			p := &list[i]
			p.What, p.Why, p.Do = numberless(p.What), numberless(p.Why), numberless(p.Do)
		}
	}
	s.Status.Engine.Why = numberless(s.Status.Engine.Why)
	if s.Status.Tether != nil {
		tether := *s.Status.Tether
		tether.Why = numberless(tether.Why)
		s.Status.Tether = &tether
	}
	s.Peers = slices.Clone(s.Peers)
	for i := range s.Peers {
		p := &s.Peers[i]
		p.LastSeen, p.Why, p.Tunnel = time.Time{}, numberless(p.Why), Tunnel{Up: p.Tunnel.Up}
	}
	return s
}

var number = regexp.MustCompile(`[0-9]+`)

// numberless has one # for every run of digits.
func numberless(text string) string { return number.ReplaceAllString(text, "#") }
