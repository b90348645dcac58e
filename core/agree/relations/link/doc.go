// Package link negotiates the link between two clusters: they agree, for each direction, on an address range for guests that is free at both,
// tell each other the ranges in use in their address spaces, and prove possession of the WireGuard keys that they name. The result is in the
// Peer's status, in a field that only this package writes, and in the gateway. It also says how a peer is reached now (Contact), and whether
// packets pass (Tunnel).
//
// Called by its sibling packages and by core/agree/relations; at its start the daemon first restores the tunnels with it. It must never move a packet:
// the gateway does, behind the interface declared here.
package link
