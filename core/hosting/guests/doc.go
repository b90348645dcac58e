// Package guests turns the OffloadedPods that consumers write into Pods and keeps those alive. Each look at one is observed
// (Reconciler), decided by a pure function (rules.decide), and applied step by step. hosting runs it; tenants clear their guests
// away with what it knows of them.
//
// It must never touch a Pod that Kith did not make, make one that has no place under a contract, or make one outside the fence.
package guests
