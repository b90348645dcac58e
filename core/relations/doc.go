// Package relations keeps the relations of this cluster with others: it drives what the custom resources
// (Peer, PeeringRequest, Advertisement, Contract) ask for through the protocol of core/peering, and writes
// what came of it back into them. The resources are the only memory; a restarted daemon finds its place
// in them.
//
//	Consumer   asks a peer, signs its offer, links the networks, has the virtual node run, ends it all
//	Provider   answers peers (it is the Desk of the peering server), countersigns, ends contracts
//	Linker     agrees with a peer on address aliases and keeps the gateway in step, for both
//
// The daemon wires it up. It must never move a packet, a pod or a screen by itself: gateway, virtualnode,
// hosting and the local API do, behind the small interfaces declared here.
package relations
