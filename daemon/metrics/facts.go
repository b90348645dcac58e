package metrics

import (
	"time"

	"kith.dev/core/api"
)

// Facts are what the daemon knows when it is asked. A nil map or slice shows nothing.
type Facts struct {
	Status   api.Status
	Contacts map[string]int    // by state
	Drops    map[string]uint64 // by reason
	// Readable is false while there is no cluster, or it does not answer: the rest is missing then.
	Readable  bool
	Peers     []Peer
	Contracts []api.Contract
	Guests    []api.Guest
}

// Peer is what is known of one.
type Peer struct {
	api.Peer
	RTT       time.Duration // to its API; zero: not known
	Clock     time.Duration // how far its clock is ahead; meaningful when reachable
	HasTunnel bool
	MTU       int // of the tunnel
}
