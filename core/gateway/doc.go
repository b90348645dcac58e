// Package gateway joins this cluster's pod network to its peers': one TUN device, WireGuard on one UDP port,
// and a data path between them that keeps no state (datapath).
//
// All clusters tend to use the same ranges, so two agree on one for the guests of each at the other, which is free at both and nobody
// else's (netplan.Pair); for the rest a guest lives in the address space of its home. A packet between alice's pod 10.42.0.5 and her guest
// 10.65.0.7 at bob has these addresses on its whole way. Alice finds the peer by the destination; bob, whose own pods have 10.42.0.0/16
// too, by the source (noderoute).
//
// Where both clusters have IPv6 the same is done with that beside it (netplan.Pair6): inside WireGuard a packet of it is behind the same
// header of handles.
//
// A range holds as long as this host needs its addresses for nothing else. When it comes to a network where it does, no
// route leads from the host itself into the device for that range, and it is told (Config.Changed, Overlapping), so that another is chosen.
//
// The daemon makes one Gateway, runs it, and gives it peers as contracts come and go. This room never decides who is a peer or
// which range it gets, never reads the network's content beyond the headers, and never lets a peer reach anything but what was agreed
// on: not the LAN, not the services of this host.
package gateway
