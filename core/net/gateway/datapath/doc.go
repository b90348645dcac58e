// Package datapath decides what becomes of one packet between the tunnel's device and WireGuard: which peer it is for or from,
// whether it may pass, and how large a TCP segment may be. It is given whole IP packets and changes them in place; it keeps no state
// (but notes that a direct way is wanted, or answers), reads no clock, and allocates nothing.
//
// A guest lives in its home's address space, so packets keep their addresses on the whole way; only where somebody else gives guests
// their addresses both are translated, at the provider (translate.go).
//
// The gateway makes a Table whenever peers or the host change and asks it from many goroutines at once. Nothing here knows WireGuard
// or the kernel, or reads a packet's content beyond the headers it must look at.
package datapath
