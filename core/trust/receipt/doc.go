// Package receipt holds the receipts of a contract: what a provider says that was used under it in an interval and what that comes to, signed, and
// what the consumer answers, signed too. They are a chain: each names the SHA-256 of the one before, so that none can be changed, left out or put in
// between later. Verify checks a whole file of them, with the contract that they are about in it, on any machine.
//
// It reads and writes canonical JSON (RFC 8785), as core/trust/contract does, and takes no other. It must never decide what is due to whom beyond the
// arithmetic of Due, read a clock, or know where receipts are kept (core/agree/receipts).
package receipt
