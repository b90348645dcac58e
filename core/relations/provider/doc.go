// Package provider keeps the direction in which this cluster provides: it puts the questions of peers before the owner or a policy, says
// what a yes gives, offers it, countersigns contracts that say no more, and lets peers compare the books. It is the Handler of the peering
// server.
//
// Called by the daemon for every message of a peer, and by core/relations for each Peer that is looked at. It must never promise what is not
// there (core/supply) or was not accepted, and never keep an object of a stranger but its question.
package provider
