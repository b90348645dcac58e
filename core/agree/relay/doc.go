// Package relay is how two peers come together of which one, or both, cannot be dialled, since a router or a firewall is in front of it.
//
// A peer that cannot be dialled calls back: this side asks it to, on the presence stream that it has open here, and uses the connection that it makes
// the other way around. A cluster whose owner said so (relay: offer) does that for its peers, too: one of them asks for another, which is called, and
// the bytes of the two connections are passed on. What passes is TLS between these two, each of which knows the other's key: whoever relays reads
// nothing of it and can change nothing.
//
//	GET  /kith/v2/relay/{id}       whether the caller could be connected with the peer of that ID now
//	POST /kith/v2/relay/{id}       an upgrade: the connection is one with that peer
//	POST /kith/v2/callback/{token} an upgrade: the connection that was asked for by a peering.CallBack
//
// Called by the daemon (wiring) and by the clients of peers that no address leads to (peering.Way). It must never connect anybody but two peers whose
// keys the owner accepted, dial an address that somebody told, or keep a connection of theirs once one of them is accepted no more.
package relay
