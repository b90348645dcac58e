// Package grants holds in memory what consumers have been granted here: the terms of each contract in which this cluster is the provider,
// the twin namespaces under them (Contracts), and what guests request of each (Allocations), which is published in the contract's status.
// The other packages of hosting ask it before they do anything for a consumer.
//
// It must never trust a label that a consumer could have written, and never exceed a contract: a guest's Pod is created only after its
// requests were allocated.
package grants
