// Package guests turns the OffloadedPods that consumers write into Pods, and recreates those that get lost. A reconciliation observes
// (Reconciler), decides by a pure function (rules.decide), and applies the resulting steps in order. core/provide/hosting runs it;
// core/provide/hosting/tenants uses it to remove the guests of a namespace.
//
// It must never change a Pod that Kith did not create, exceed a contract, or create a Pod outside the fence.
package guests
