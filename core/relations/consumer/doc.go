// Package consumer keeps the direction in which this cluster consumes: it asks a peer, compares and agrees as the owner says, signs, runs the
// virtual node (behind Fleet) while the contract is in force, has the contract renewed in time, and brings the pods home at its end.
//
// Called by core/relations for each Peer that is looked at, and by the daemon, which shows what is asked for and waits. It must never
// believe what a peer says of whether its key is known, nor sign what the owner did not agree to.
package consumer
