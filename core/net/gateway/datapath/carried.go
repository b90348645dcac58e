package datapath

import "sync/atomic"

// Carried counts the bytes of packets that passed between a peer's guests here and their home, and between our guests at the peer and us, as the pods
// sent them: without what the tunnel adds. It outlives tables.
type Carried struct{ Here, There atomic.Uint64 }

// here counts a packet of a peer's guests here.
func (tn *tunnel) here(p []byte) {
	if tn.carried != nil {
		tn.carried.Here.Add(uint64(len(p)))
	}
}

// there counts a packet of our guests at the peer.
func (tn *tunnel) there(p []byte) {
	if tn.carried != nil {
		tn.carried.There.Add(uint64(len(p)))
	}
}
