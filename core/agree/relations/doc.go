// Package relations is the controller of Peers and Contracts: it carries out what these custom resources ask for, by the protocol of
// core/agree/peering, and writes the result into their status. The work is done by its subpackages:
//
//	consumer   asks a peer, signs its offer, has the virtual node run, renews, ends it all
//	provider   answers peers (it is the Handler of the peering server), offers, countersigns, ends
//	link       agrees with a peer on address aliases and keeps the gateway in step, for both
//	record     reads and writes the Peer and Contract objects, for all of them
//
// consumer and provider know nothing of each other. What concerns both is here: over each new connection the contracts that each side holds
// are compared, and what is left of an ended contract is removed.
//
// The daemon wires it up. All state is in the resources, so a restarted daemon continues from them. It must never move a packet, a pod or a
// screen by itself: gateway, virtualnode, hosting and the local API do, behind interfaces that the subpackages declare.
package relations
