// Package record reads and writes the objects that hold all state of relations: the Peer, with the state of each direction, and the Contract. It
// also has the constants that both sides of a contract rely on: how long it runs, and how far two clocks may differ.
//
// Called by its sibling packages (consumer, provider, link), by core/agree/relations and by the daemon. It must never call a peer, and makes no
// decisions from the objects.
package record
