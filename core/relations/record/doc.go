// Package record reads and writes what this cluster remembers of its relations: the Peer, with the state of each direction, and the
// Contract. The objects are the only memory there is. It also has the few numbers that both sides of a contract go by: how long it runs,
// and how far two clocks may be apart.
//
// Called by the rooms beside it (consumer, provider, link), by relations and by the daemon. It must never speak to a peer, and decides
// nothing: what follows from an object is for those rooms to say.
package record
