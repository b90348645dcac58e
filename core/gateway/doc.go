// Package gateway joins this cluster's pod network to its peers': one TUN device, WireGuard on one UDP port,
// and stateless prefix translation between them (datapath).
//
// All clusters tend to use the same ranges, so every side picks, for each range a peer shows it, an alias range
// that is free here (netplan.ChooseAlias) and tells the peer. A packet from alice's pod 10.42.0.5 to bob's pod 10.42.0.7:
//
//	alice's pod    10.42.0.5 → 10.65.0.7   bob's pod as alice sees it
//	alice, egress  10.70.0.5 → 10.65.0.7   source: alice's pod as bob sees it
//	bob, ingress   10.70.0.5 → 10.42.0.7   destination: bob's pod as he uses it himself
//
// Egress finds the peer by destination, ingress by source, which WireGuard has authenticated; so two peers may
// call us by the same alias. No state is kept, no packet filter rule is needed, nothing is allocated per packet.
//
// An alias holds as long as this host needs its addresses for nothing else. When it comes to a network where it does, no
// route leads into the device for that alias (noderoute), and whoever chose it is told (Config.Overlaps) to choose another.
//
// The daemon makes one Gateway, runs it, and gives it peers as contracts come and go. This room never decides who is a peer or
// which alias it gets, never reads the network's content beyond the headers it must rewrite, and never lets a peer reach anything
// but the mapped ranges: not the LAN, not the services of this host.
package gateway
