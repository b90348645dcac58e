package link

import (
	"net/netip"
	"time"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/peering"
)

// Directory leads to the daemons of peers.
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
