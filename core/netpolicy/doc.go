// Package netpolicy has NetworkPolicies of home hold for its pods at peers.
//
// What goes between home and its pods at a peer, and between its pods at two peers, passes home, whose own engine holds both ends to
// the policies without asking anybody. What pods at one peer send to each other, and to the internet, does not: that is for the provider, which
// is told by one message (Policies), all of what holds for the guests of one home each time. The daemon makes a Home for
// the cluster and a Peer for each virtual node; core/hosting takes the message at the provider (Read) and makes
// NetworkPolicies of it in the twins (Policy.At), which the engine there enforces like its owner's.
//
// Peers travel as what they are: selectors, for the provider knows its guests by their labels, with namespaces by their names at
// home; so nothing has to be sent when pods come and go. Home's address space is allowed in each of them, for home sees to that
// itself. An ipBlock travels as it is.
//
// A policy that a peer does not take gets an event that says so, once for each cause.
package netpolicy
