// Package lab makes a LAN of laptops on one Linux machine, for newcomers to play with, for the end-to-end tests and for
// the benchmarks. Each laptop has its own network, mount, PID, UTS, IPC and cgroup namespaces, its own disk, and runs
// the real kithd, the real engine and real containers. The LAN is a bridge in a network namespace of the lab's own; links
// can be cut, slowed and healed, laptops frozen, killed, booted and moved.
//
// Its callers are cmd/kith-lab, a thin command line over this package, and the tests in test/e2e and test/bench.
//
// What exists is read from the kernel: every process of a lab is in a cgroup named kith-lab.<lab>.<laptop>, and nothing
// of it is mounted outside its laptops. So Down works after any crash. The package must never touch the machine's
// own network namespace or mounts; the only settings of the machine it changes are limits that it raises (limits.go).
// It needs root.
package lab
