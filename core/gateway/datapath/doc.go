// Package datapath decides what becomes of one packet between the tunnel's device and WireGuard: which peer it is for or from,
// under which addresses it goes on, whether it may reach this host, and how large a TCP segment may be. It is given whole IP packets
// and changes them in place; it keeps no state, reads no clock, and allocates nothing.
//
// The gateway makes a Table whenever peers or the host change and asks it from many goroutines at once. Nothing here knows WireGuard
// or the kernel, or reads a packet's content beyond the headers it must rewrite.
package datapath
