// Package provider handles the direction in which this cluster is the provider: it submits the requests of peers to the owner or a policy,
// computes what accepting one would grant, makes the offer, countersigns contracts that say no more than the offer, and tells peers which
// contracts it holds. It is the Handler of the peering server.
//
// Called by the daemon for every message of a peer, and by core/agree/relations when it reconciles a Peer. It must never promise what is not free
// (core/agree/supply) or was not accepted, and never keep an object for a stranger except its request.
package provider
