// Package sharing says what this cluster offers to whom: which SharingPolicy counts for a peer, what its
// amounts come to on these machines, and how much of that is still free for one more contract. Whoever
// answers requests and signs contracts calls it, and hosting asks it for the pod security level of guests.
// It is functions from values to values; it must never read a clock, a cluster or a file.
package sharing
