package datapath

import "sync/atomic"

// Carried counts the bytes of packets that passed between a peer's guests here and their home, and between our guests at the peer and us, as the pods
// sent them: without what the tunnel adds. It outlives tables.
type Carried struct{ Here, There atomic.Uint64 }

// count counts a packet of a peer's guests here, or of our guests at the peer.
func (tn *tunnel) count(whose kind, p []byte) {
	switch {
	case tn.carried == nil:
	case whose == here:
		tn.carried.Here.Add(uint64(len(p)))
	default:
		tn.carried.There.Add(uint64(len(p)))
	}
}
