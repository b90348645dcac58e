package metrics

import "time"

// Facts are what the daemon knows when it is asked. A nil map or slice shows nothing.
type Facts struct {
	EngineKind, EngineState string
	// Readable is false while there is no cluster, or it does not answer: the fields up to Drops are missing then.
	Readable                bool
	Peers                   []Peer
	Contracts               map[Contract]int
	RequestsIn, RequestsOut int
	Offered, Promised, Used Amounts
	Guests                  map[Guest]int
	Drops                   map[string]uint64 // by reason
	Contacts                map[string]int    // by state
	Problems                map[string]int    // by severity
	Reconciles              []Reconciles
}

// Amounts are resources by name: cores, bytes or pieces.
type Amounts map[string]float64

// Peer is what is known of one.
type Peer struct {
	Name               string
	Outgoing, Incoming string // states
	Reachable          bool
	RTT                time.Duration // zero: not known
	Clock              time.Duration // how far its clock is ahead; meaningful when reachable
	Tunnel             *Tunnel       // nil: there is none
	PodsAbroad         int
	Granted, Used      Amounts
}

// Tunnel is the WireGuard tunnel to a peer.
type Tunnel struct {
	Up             bool
	LastHandshake  time.Time
	Received, Sent uint64
	MTU            int
}

// Contract counts contracts that have both in common.
type Contract struct{ Role, State string }

// Guest counts pods that have both in common.
type Guest struct{ Peer, Phase string }

// Reconciles are the runs of one controller since kithd started.
type Reconciles struct {
	Controller string
	Results    map[string]float64 // by result
	Errors     float64
}
