// Package netpolicy makes this cluster's (home's) NetworkPolicies apply to its pods at peers.
//
// Traffic between home and its pods at a peer, and between its pods at two peers, passes through home, whose own engine enforces the policies
// for both ends. Traffic of pods at one peer among each other, and to the internet, does not: the provider must enforce the policies. It gets
// them in one message (Policies), each time with everything that applies to the guests of one home. The daemon makes a Home for the
// cluster and a Peer for each virtual node; core/provide/hosting receives the message at the provider (Read) and creates NetworkPolicies in the
// twin namespaces (Policy.At), which the engine there enforces like its owner's.
//
// The peers of a rule are sent as selectors, with the names of namespaces at home, since the provider knows its guests' labels. So nothing has
// to be sent when pods come and go. All addresses of home are allowed in each policy, since home enforces its own side. An ipBlock is sent as
// it is.
//
// A policy that a peer does not accept gets an event that says so, once for each cause.
package netpolicy
