// Package consumer handles the direction in which this cluster is the consumer: it sends a request to a peer, has the owner confirm the key and
// the terms, signs the contract, runs the virtual node (behind Fleet) while the contract is in force, renews the contract in time, and
// evicts the pods from the peer at its end.
//
// Called by core/agree/relations when it reconciles a Peer, and by the daemon, which shows requests that wait for an answer. Whether the peer's key is
// known must never depend on what the peer says, and nothing may be signed that the owner has not agreed to.
package consumer
