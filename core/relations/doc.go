// Package relations keeps the relations of this cluster with others: it drives what the custom resources ask for through the protocol of
// core/peering, and writes what came of it back into them. It looks at each Peer and each Contract, and has the rooms below it do the rest:
//
//	consumer   asks a peer, signs its offer, has the virtual node run, renews, ends it all
//	provider   answers peers (it is the Handler of the peering server), offers, countersigns, ends
//	link       agrees with a peer on address aliases and keeps the gateway in step, for both
//	record     reads and writes the Peer and Contract objects, for all of them
//
// consumer and provider know nothing of each other. What concerns both is here: the books of both sides are compared over each new
// connection, and of a contract that ended nothing is left.
//
// The daemon wires it up. The resources are the only memory; a restarted daemon finds its place in them. It must never move a packet, a pod
// or a screen by itself: gateway, virtualnode, hosting and the local API do, behind the small interfaces that the rooms declare.
package relations
