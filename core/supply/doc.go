// Package supply says how much of this cluster may be promised anew: what its nodes can allocate together, less what the owner's own
// pods request, less what contracts grant already. core/sharing bounds its offers by it, core/relations/provider gathers what it follows from,
// and the daemon shows it beside the owner's policies and strips the cache of pods with it.
//
// It is functions from values to values. It must never read a cluster or a clock, and it takes nothing back: what was signed stays,
// however many pods the owner starts.
package supply
