// Package sharing says what this cluster offers to whom: which SharingPolicy counts for a peer, what its
// amounts come to on these machines, how much of that is still free for one more contract, and so what a yes to a request gives. Whoever
// answers requests and signs contracts calls it, and hosting asks it for the pod security level of guests.
// It is functions from values to values; it must never read a clock, a cluster or a file.
package sharing
