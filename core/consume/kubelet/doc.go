// Package kubelet is the HTTPS endpoint of the virtual nodes, on a port for each: what the home API server dials for logs, exec, attach
// and port-forward of pods at peers, and collectors for what these use and for the list of them. It relays streams to the peer's API server as they are, and tells
// of use what the peer says, as far as it is about pods of this node.
//
// The daemon makes one Kubelet for the cluster, and core/consume/consumer gives it a Node for each peer. Who calls must show a certificate of the
// cluster's client authority, or a token where that is enough, and home's API server says what it may.
//
// It must never tell a peer who asks, nor home anything of pods that are not on the node.
package kubelet
