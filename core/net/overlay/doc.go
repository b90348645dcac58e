// Package overlay carries packets between the nodes of a cluster and the node that the gateway is on, in clusters of several nodes that Kith
// does not run. What pods send to peers, and the replies, go through a VXLAN of Kith's own between the nodes' addresses. So nothing depends on
// the network plugin, which would drop addresses that it does not know.
//
// `kithd node` runs it on each node. World says which node the gateway is on and which ranges belong to peers; PlanOf, a pure function, derives
// the plan for this node; Kernel applies it: one device, two routing tables with a rule each, and the nftables table kith-nodes. It must never
// touch what is not its own, and never decide who may reach whom: core/provide/fence does.
//
// # The way of a packet
//
//	pod on node 2 ─▶ rule: table toPeers ─▶ kith-vxlan ═══UDP═══▶ kith-vxlan on the gateway's node ─▶ kith0 ─▶ peer
//	pod on node 2 ◀─ kith-vxlan ◀═══UDP═══ rule: iif kith0, table toPods ◀─ kith0 ◀─ peer
//
// Next hops are the nodes' own addresses, marked onlink, with permanent neighbours: no ARP, no learning. A node's address on the device is the
// first of its part of the pods' range, which no pod gets: it is in the range that peers know, so that what a node sends itself, or for a
// node port, is answered.
//
// # What keeps others out
//
// VXLAN packets are accepted from addresses of nodes only, and no node forwards what a pod sends to that port of a node. As with every overlay
// without encryption (flannel, Calico and Cilium have the same), whoever can spoof a node's address on the network between the nodes can spoof
// a pod's, too.
package overlay
