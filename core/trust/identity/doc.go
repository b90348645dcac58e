// Package identity holds who a cluster is: one Ed25519 key, the ID made from it, the mutual TLS two
// daemons speak with such keys, and the six-digit code their owners compare when they first meet.
//
// The ID is the SHA-256 of the public key, so it needs no authority and cannot be taken over; whoever
// completes a handshake as that ID holds its private key. Everything else a peer says about itself (its
// name, its addresses) is a hint.
//
// Called by peering (TLS, pairing code), discovery and the daemon (own ID), sharing and virtualnode
// (signatures under contracts; names and labels made of an ID). It must never reach for the network or
// the cluster, never decide whom to trust, and never hand out the private key.
package identity
