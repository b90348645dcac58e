// Package sharing computes what this cluster offers to a peer: which SharingPolicy applies, what its amounts are on these machines, how much of
// that is free for one more contract, and so what accepting a request would grant. core/agree/relations/provider calls it for requests and
// contracts, and core/provide/hosting for the pod security level of guests. It is functions from values to values; it must never read a clock, a
// cluster or a file, except those of the time zones.
package sharing
