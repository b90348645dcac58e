// Package noderoute is the kernel's side of the tunnel's device on this node: its address and settings, the rules that keep what
// comes out of it from travelling on, and the routes that lead peers' ranges into it.
//
// The gateway says which ranges; this room makes the kernel's state that, touches nothing of others, and leaves nothing behind. It
// knows no peers and no WireGuard.
package noderoute
