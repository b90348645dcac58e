// Package supply computes how much of this cluster is free for new contracts: what its nodes can allocate together, less what the owner's own
// pods request, less what existing contracts grant. core/agree/sharing bounds its offers by it, core/agree/relations/provider collects its inputs, and
// the daemon shows it beside the owner's policies and uses Slim to keep the cache of pods small.
//
// It is functions from values to values, and must never read a cluster or a clock. It never reduces an existing contract, however many pods the
// owner starts.
package supply
