// Package contract holds what a consumer and a provider sign: one document, written as canonical JSON
// (RFC 8785) so that both keep the same bytes, and the two Ed25519 signatures under it.
//
// Who may use what follows from the document alone: the parties are named by the hash of the keys it
// carries, so a copy in a bug report proves as much as the original.
//
// Called by peering (messages), relations (making, signing and keeping contracts), hosting (what a caller may
// use) and the daemon (kith contract verify). It must never reach for the network, the cluster or the clock:
// bytes in, verdict out.
package contract
