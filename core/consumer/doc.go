// Package consumer is the consumer's half of Kith: the fleet of peers that this cluster has a contract with. A member of it is a
// peer as a node here and all that its pods need: the virtual node (core/virtualnode), the other objects (core/reflection) and the
// policies (core/netpolicy), over one client of that peer (core/remote).
//
// The daemon makes one Fleet for the cluster. core/relations tells it which contracts are in force and how their peers are reached
// (relations.Fleet); core/offloading has it open and review twins; the local API asks it what peers keep.
//
// It must never decide whom to ask for what, nor which pods may leave: that is for relations and offloading. What a peer says here
// changes what is shown of that peer, and nothing else.
package consumer
