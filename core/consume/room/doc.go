// Package room tells what pods of this cluster need of peers: those that are there, and those for which the scheduler found no node and that would run
// there if there were room. PeeringPolicies that grow go by it (core/agree/relations/seeking).
//
// It goes by the facts that core/consume/why goes by, and must never decide what is asked of whom, write anything, or read past the caches.
package room
