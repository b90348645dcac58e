// Package doctor looks for what keeps Kith from working, one check after the other, and says of each what it found,
// why, and what to do about it.
//
// The checks of the machine (ports, ranges, kernel, disk) need nobody: kithd runs them, and the command line does when no
// kithd answers. Those of a peer go its whole way, from its name's addresses to a ping through the tunnel; the daemon
// gives what it knows and holds. Checks look and never change anything, end within seconds, and each failure names
// the step that failed.
package doctor
