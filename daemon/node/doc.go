// Package node is `kithd node`: what runs on each node of a cluster of several, beside the one kithd that works. It leads pods of its node to
// the gateway's (core/net/overlay), and where kithd itself does not keeps the fence around guests on its node (core/provide/fence) and leads them by
// the addresses of their homes (core/provide/translate).
//
// It reads nodes, guests, what of their homes' services is here, peers, contracts and policies, and writes nothing in the cluster.
package node
