// Package grants is what consumers have been granted here, in memory: the terms of each contract in which this cluster provides and
// the twin namespaces under them (Contracts), and what guests hold of each (Allocations), which is published in the contract's status.
// The other rooms of hosting ask it before they do anything for a consumer.
//
// It must never believe a label that a consumer could have written, and never promise more than a contract grants: a guest has its
// allocation before it is made.
package grants
