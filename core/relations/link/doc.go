// Package link makes and keeps the link of two clusters: they agree on a range of addresses for the guests of each at the other, free at
// both, tell each other what means something in their address spaces, and prove that the WireGuard key they name is their own. What was
// agreed stands in the Peer's status, which nobody else writes, and the gateway is told. It also says how a peer is reached at this moment
// (Contact), and whether packets pass (Tunnel).
//
// Called by the rooms beside it and by relations; the daemon has tunnels restored by it before anything else. It must never move a packet: the gateway
// does, behind the interface declared here.
package link
