// Package base is the lowest floor: small tools that know nothing of clusters, peers or people.
//
// Comes in: nothing but the standard library and the operating system. Goes out: files that are whole at every moment, programs that
// outlive whoever started them, paths, work queues, a broadcast. Never here: a word of Kubernetes' objects or of the protocol, and no state
// that two owners share. A tool that one floor alone needs lives on that floor.
package base
