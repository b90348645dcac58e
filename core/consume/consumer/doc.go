// Package consumer runs what this cluster needs at the peers that it consumes from. Its Fleet has a member for each contract: the peer's virtual
// node (core/consume/virtualnode), the copies of objects that pods need there (core/consume/reflection) and the NetworkPolicies (core/consume/netpolicy), over one
// client of that peer (core/consume/remote).
//
// The daemon makes one Fleet for the cluster. core/agree/relations tells it which contracts are in force and how their peers are reached
// (relations.Fleet); core/consume/offloading makes it create and release twins; the local API asks it what peers keep.
//
// It must never decide from which peer to request what, nor which pods may leave: relations and offloading do. What a peer says affects only
// what is shown of that peer.
package consumer
