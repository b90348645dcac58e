// Package node is `kithd node`: what runs on each node of a cluster of several, beside the one kithd that works. It leads pods of its node to
// the gateway's (core/net/overlay) and keeps the fence around guests on its node (core/provide/fence), where kithd itself does not.
//
// It reads nodes, guests, peers, contracts and policies, and writes nothing in the cluster.
package node
