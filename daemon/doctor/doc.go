// Package doctor looks for what keeps Kith from working, one check after the other, and says of each what it found,
// why, and what to do about it.
//
// The checks of the machine (socket, ports, ranges, LAN, kernel, disk) need nobody: kithd runs them, and the command line does when no
// kithd answers. Those of a peer go its whole way, from its name's addresses to a ping through the tunnel; the daemon
// gives what it knows and holds. Checks look and never change anything, end within seconds, and each failure names
// the step that failed.
//
// A check says whether what it found is safe to be mended for the owner, and by which commands. Machine.Mend carries those out, kithd
// alone calls it, with names: no command ever comes from outside of a check. What the owner set up otherwise is not mended.
package doctor
