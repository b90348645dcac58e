package link

import (
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
)

// Directory gives clients for the daemons of peers.
type Directory interface {
	// Client speaks to the peer, and only to the holder of its key.
	Client(peer *v1alpha1.Peer) (*peering.Client, error)
	// Contact tells whether the peer answers now.
	Contact(peer *v1alpha1.Peer) peering.Contact
}

// Tunnel says why no packets pass to a peer whose daemon can be reached; "" when they do. known is false when that cannot be said: the daemon
// cannot be reached either, or the tunnel is still coming up; then call it again after the time again.
func (l *Linker) Tunnel(peer *v1alpha1.Peer, there presence.Presence, now time.Time) (why string, known bool, again time.Duration) {
	s, told := l.cfg.Gateway.Stats(peer.Spec.ID)
	switch left, runs := presence.Tunnel.Left(there, now); {
	case !runs, !told, peer.Status.Network == nil:
		return "", false, 0
	case s.Up:
		return "", true, 0
	case left > 0:
		return "", false, left
	}
	return "tunnel: " + s.Why(now), true, 0
}
