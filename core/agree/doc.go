// Package agree is the floor of what two clusters say to each other and sign.
//
// Comes in: an owner's wish, an owner's answer, policies, messages of peers. Goes out: Peer, PeeringRequest and Contract objects that say in
// closed sets of values what was asked, answered and signed, and who is there. Never here: a pod, a packet, a namespace. A contract says
// what is owed; the floors of the consumer and the provider see to it.
package agree
