// Package wake holds the last word of a machine before it is suspended: whether another cluster may wake it, how often, and by which devices on which
// networks. It is signed, so that a third machine on the network may act on it, too.
//
// Called by core/agree/relations/waking, which writes and acts on such words, and by peering, which carries them. It must never reach for the network, the
// clock or the machine: bytes in, word out.
package wake
