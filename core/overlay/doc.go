// Package overlay leads packets between the nodes of a cluster and its gateway, for clusters of several nodes that somebody else runs: what pods
// send to peers goes from their node to that of the gateway, and the answers back, through a VXLAN of Kith's own between the nodes'
// addresses. So nothing depends on the network plugin, which would have to carry addresses that it does not know.
//
// Command `kithd node` runs it on each node. Which node the gateway is on, and which ranges lead to peers, it is told (World); what follows
// for this node is a pure function (PlanOf), and Kernel makes the kernel's state that: one device, two tables of routes with a rule each, and the
// nftables table kith-nodes. It must never touch what is not its own, and never decide who may reach whom: fence does.
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
// Packets of the VXLAN are taken from addresses of nodes alone, and no node passes on what a pod sends to that port of a node. As with every
// overlay that is not encrypted (flannel, Calico and Cilium have the same), who can send in a node's name on the network between them can
// send in a pod's name, too.
package overlay
