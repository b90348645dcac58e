// Package link makes and keeps the link of two clusters: each side picks, for every range that the other shows it, an alias that is free
// here, and proves that the WireGuard key it names is its own. What was agreed stands in the Peer's status, which nobody else writes, and
// the gateway is told. It also says how a peer is reached at this moment (Contact), and whether packets pass (Tunnel).
//
// Called by the rooms beside it and by relations; the daemon has tunnels restored by it before anything else. It must never move a packet: the gateway
// does, behind the interface declared here.
package link
