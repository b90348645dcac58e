package link

import (
	"time"

	"kith.dev/core/api/v1alpha1"
)

// tunnelPatience is how long after the contact came about the first answer through the tunnel may take.
const tunnelPatience = 15 * time.Second

// Tunnel says why nothing passes to a peer that can be reached. known is false when that cannot be said: the peer cannot be
// reached anyway, or the tunnel is still coming up; then again is when to look again.
func (l *Linker) Tunnel(peer *v1alpha1.Peer, contact Contact, now time.Time) (why string, known bool, again time.Duration) {
	if !contact.Reachable || peer.Status.Network == nil {
		return "", false, 0
	}
	s, told := l.cfg.Gateway.Stats(peer.Spec.ID)
	switch left := contact.Since.Add(tunnelPatience).Sub(now); {
	case !told:
		return "", false, 0
	case s.Up:
		return "", true, 0
	case left > 0:
		return "", false, left
	}
	return "tunnel: " + s.Why(now), true, 0
}
