package virtualnode

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/consume/remote"
)

// PeerReachable is a condition of the virtual node: it tells of a lost link at once, Ready after a grace period.
const PeerReachable corev1.NodeConditionType = "PeerReachable"

// Reasons of the node's conditions.
const (
	reasonConnected   = "PeerConnected"
	reasonAsleep      = "PeerAsleep" // of Ready: its Kubernetes starts when a pod goes there
	reasonUnreachable = "PeerUnreachable"
	reasonSuspended   = "PeerSuspended" // its laptop went to sleep, as it said
	reasonAway        = "ProviderAway"  // of Ready, where the node is that of a provider behind the peer
	reasonTunnel      = "TunnelDown"    // of conditions while no packet passes between home and the pods abroad
)

// state is what the node's status is made from.
type state struct {
	resources corev1.ResourceList
	labels    map[string]string
	machine   remote.Machine
	there     presence.Presence
	tunnel    string // why no packet passes; empty when they do
	away      string // why the provider behind the peer runs nothing; empty when it does
	// old are the conditions published last, for their transition times.
	old []corev1.NodeCondition
}

// countable is what of a contract a node can have. The peer chose the names, and its contract is signed: one resource that the API server takes
// in no node's status, or half a device, would keep it from all the rest.
func countable(resources corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range resources {
		if api.Extended(string(name)) {
			n := q.Value()
			if quantity.NewQuantity(n, q.Format).Cmp(q) > 0 { // Value rounds up
				n--
			}
			q = *quantity.NewQuantity(n, quantity.DecimalSI)
		}
		if api.Countable(string(name)) {
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// conditions are the node's, keeping the transition times of old where nothing changed.
func (s *state) conditions(old []corev1.NodeCondition, now time.Time) []corev1.NodeCondition {
	message := cmp.Or(s.there.Why, "the peer answers")
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: reasonConnected, Message: message}
	if s.there.Asleep {
		ready.Reason, ready.Message = reasonAsleep, "the peer's Kubernetes sleeps, as nobody needs it; a pod wakes it"
	}
	if s.away != "" {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, reasonAway, s.away
	}
	if presence.Node.Over(s.there, now) {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, absence(s.there), message
	}
	reachable := corev1.NodeCondition{Type: PeerReachable, Status: corev1.ConditionTrue, Reason: string(PeerReachable), Message: message}
	if !s.there.Works() {
		reachable.Status, reachable.Reason = corev1.ConditionFalse, absence(s.there)
	}
	all := []corev1.NodeCondition{ready, reachable,
		fine(corev1.NodeMemoryPressure, "PeerKeepsTheContract", "the contract grants the memory shown"),
		fine(corev1.NodeDiskPressure, "PeerKeepsTheContract", "the contract grants the storage shown"),
		fine(corev1.NodePIDPressure, "PeerKeepsTheContract", "the peer watches over its processes"),
		s.network(),
	}
	for i := range all {
		all[i].LastHeartbeatTime, all[i].LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		for _, was := range old {
			if was.Type == all[i].Type && was.Status == all[i].Status {
				all[i].LastTransitionTime = was.LastTransitionTime
			}
		}
	}
	return all
}

// absence is the reason of conditions while the peer is not there.
func absence(there presence.Presence) string {
	if there.State == presence.Suspended {
		return reasonSuspended
	}
	return reasonUnreachable
}

// network is the condition that kubelets leave to the network's provider.
func (s *state) network() corev1.NodeCondition {
	if s.tunnel == "" {
		return fine(corev1.NodeNetworkUnavailable, "PeerKeepsTheContract", "the gateway carries the pods' traffic")
	}
	return corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: reasonTunnel, Message: s.tunnel}
}

func fine(t corev1.NodeConditionType, reason, message string) corev1.NodeCondition {
	return corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}
