// Package virtualnode is the consumer's side of a contract: the peer appears as a node of the home cluster,
// and the pods the ordinary scheduler binds to that node run at the peer.
//
// core/consume/consumer makes one Node per contract. The Node registers itself and renews its lease (virtual-kubelet's
// NodeController), asks the peer for each pod by an OffloadedPod in a twin namespace, and brings status and events
// of the guest pod back. What the home API server dials for logs and exec is core/consume/kubelet's.
//
// The pods are reconciled level-triggered, from what is at home and what is abroad, and not by
// virtual-kubelet's PodController: that one takes a pod from the API server when its grace is over although
// the peer may still run it, marks pods that never restart as failed when one call to the peer fails, forgets
// a pod after twenty failures, and lets every deletion last its whole grace period.
//
// It must never create Pods abroad, never schedule, and never write a pod's status while the peer cannot
// be reached.
package virtualnode
