package virtualnode

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/consume/remote"
)

// PeerReachable is a condition of the virtual node: it tells of a lost link at once, Ready after a grace period.
const PeerReachable corev1.NodeConditionType = "PeerReachable"

// Reasons of the node's conditions.
const (
	reasonConnected   = "PeerConnected"
	reasonUnreachable = "PeerUnreachable"
	reasonTunnel      = "TunnelDown" // of conditions while no packet passes between home and the pods abroad
)

// state is what the node's status is made from.
type state struct {
	resources corev1.ResourceList
	machine   remote.Machine
	reachable bool
	since     time.Time // of the last change of reachable
	reason    string
	message   string
	tunnel    string // why no packet passes; empty when they do
	// published is whether the node counts as Ready; it follows reachable, downwards only after the grace.
	published bool
	// old are the conditions published last, for their transition times.
	old []corev1.NodeCondition
}

// link takes note of the link, which is so since that time: healed when it just came back, changed when the node's conditions are
// others than before.
func (s *state) link(reachable bool, reason, message string, since time.Time) (healed, changed bool) {
	changed = s.reachable != reachable || s.reason != reason || s.message != message || reachable && !s.published
	if s.reachable != reachable {
		s.since = since
		healed = reachable
	}
	s.reachable, s.reason, s.message = reachable, reason, message
	s.published = s.published || reachable
	return healed, changed
}

// expire turns the node NotReady when its grace period is over, and returns how long that still takes; 0: there is nothing to wait for.
func (s *state) expire(grace time.Duration, now time.Time) time.Duration {
	if s.reachable || !s.published {
		return 0
	}
	if left := s.since.Add(grace).Sub(now); left > 0 {
		return left
	}
	s.published = false
	return 0
}

// conditions are the node's, keeping the transition times of old where nothing changed.
func (s *state) conditions(peer string, old []corev1.NodeCondition, now time.Time) []corev1.NodeCondition {
	message := s.message
	if message == "" && s.reachable {
		message = peer + " is connected"
	} else if message == "" {
		message = peer + " cannot be reached"
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: reasonConnected, Message: message}
	if !s.published {
		ready.Status, ready.Reason = corev1.ConditionFalse, reasonUnreachable
	}
	reachable := corev1.NodeCondition{Type: PeerReachable, Status: corev1.ConditionTrue, Reason: reasonConnected, Message: message}
	if !s.reachable {
		reachable.Status, reachable.Reason = corev1.ConditionFalse, reasonUnreachable
	}
	if s.reason != "" {
		reachable.Reason = s.reason
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
