// Package gateway joins this cluster's pod network to its peers': one TUN device, WireGuard on one UDP port,
// and a data path between them that keeps no state (datapath).
//
// Most clusters use the same default ranges. So two clusters agree, for each direction, on a range for the guests (pods of one that run at the
// other) which is free at both (netplan.Pair); otherwise a guest uses the addresses of its home cluster. A packet between alice's pod
// 10.42.0.5 and her guest 10.65.0.7 at bob has these two addresses on its whole way. Alice finds the peer by the destination; bob, whose own
// pods have 10.42.0.0/16 too, by the source (noderoute).
//
// Where both clusters have IPv6 the same is done for it (netplan.Pair6): inside WireGuard its packets have the same outer header
// (datapath.Header).
//
// A range is used only while this host needs its addresses for nothing else. When the host comes to a network with such addresses, its own
// packets to that range are no longer routed into the device, and the overlap is reported (Config.Changed, Overlapping), so that another
// range is chosen.
//
// The daemon makes one Gateway, runs it, and adds and removes peers as contracts come and go. This package never decides who is a peer or which
// range it gets, never reads a packet beyond its headers, and never lets a peer reach anything but what was agreed on: not the LAN, not the
// services of this host.
package gateway
