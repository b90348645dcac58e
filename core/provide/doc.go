// Package provide is the provider's floor: what this laptop gives, and the fence around it.
//
// Comes in: requests of consumers at the door, with a proven key, and the owner's policies. Goes out: twin namespaces, Pods made from
// OffloadedPods, their addresses, a fence around them. Never here: trust in what a consumer wrote. What exceeds the contract or the
// policy is refused with a reason, and recorded.
package provide
