package link

import (
	"net/netip"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api/v1alpha1"
)

// Directory gives clients for the daemons of peers.
type Directory interface {
	// Client speaks to the peer, and only to the holder of its key.
	Client(peer *v1alpha1.Peer) (*peering.Client, error)
	// Contact tells whether the peer answers now.
	Contact(peer *v1alpha1.Peer) Contact
}

// Contact is how a peer is reached at this moment.
type Contact struct {
	Reachable bool
	Since     time.Time      // of the connection, or of its loss
	Address   netip.AddrPort // of the peer API, when reachable
	Why       string         // when not reachable, for people
	Heard     time.Time      // when not reachable any more: of its last sign of life; else zero
	Ailing    string         // when reachable: why it cannot do its work, as it says itself; empty when all is well
}

// tunnelPatience is how long after the contact came about the first answer through the tunnel may take.
const tunnelPatience = 15 * time.Second

// Tunnel says why no packets pass to a peer whose daemon can be reached; "" when they do. known is false when that cannot be said: the daemon
// cannot be reached either, or the tunnel is still coming up; then call it again after the time again.
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
