// Package waking has machines of peers woken that sleep (Wake on LAN), where the contract says that they may be.
//
// At a provider, before its machine is suspended, each consumer that may wake it gets its last word on that (core/trust/wake); and who woke it is counted. At
// home a machine is woken when pods wait that would fit at its node and nowhere else, or by hand, no more often than was agreed: by home itself on
// the machine's network, else by a peer that is on it, knows both, and was asked. What was said and how often is in the contract's status.
//
// It must never wake anybody without a last word that lets it, keep what the ledger has, or arm a device.
package waking
