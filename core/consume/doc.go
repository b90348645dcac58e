// Package consume is the consumer's floor: peers as nodes, and what their pods need of home.
//
// Comes in: contracts in which this cluster asked, and its own pods, services and configuration. Goes out: a node for each contract,
// OffloadedPods and reflected objects at the peer, their status and logs back here. Never here: a Pod made abroad; only the provider makes
// Pods. What the peer tells is read with the bounds of core/trust/wire.
package consume
