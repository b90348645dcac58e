package virtualnode

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reasonTunnel is that of conditions while no packet passes between home and the pods abroad.
const reasonTunnel = "TunnelDown"

// SetTunnel tells why no packet passes between the pods here and there, for people; empty when they do. While none does the
// node is NetworkUnavailable, so that no pod is bound to it, and its pods are not Ready, so that no request is sent to them. They
// run on, and nothing is evicted: what they do among themselves goes on, and the node stays Ready.
func (n *Node) SetTunnel(why string) {
	n.mu.Lock()
	was := n.state.tunnel
	changed := (was == "") != (why == "")
	if changed {
		n.state.tunnel = why
	}
	n.mu.Unlock()
	if !changed {
		return
	}
	n.log.Info("the tunnel to the peer", "node", n.cfg.NodeName, "up", why == "", "why", why)
	n.poke()
	n.Recheck()
}

func (n *Node) tunnelDown() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state.tunnel
}

// network is the condition that kubelets leave to the network's provider.
func (s *state) network() corev1.NodeCondition {
	if s.tunnel == "" {
		return fine(corev1.NodeNetworkUnavailable, "PeerKeepsTheContract", "the gateway carries the pods' traffic")
	}
	return corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: reasonTunnel, Message: s.tunnel}
}

// reached is the guest's readiness as it is at home, where it means that requests may be sent.
func (v view) reached(ready corev1.PodCondition) corev1.PodCondition {
	if ready.Status == corev1.ConditionTrue && v.tunnel != "" {
		ready.Status, ready.Reason, ready.LastTransitionTime = corev1.ConditionFalse, reasonTunnel, metav1.Now()
		ready.Message = v.tunnel + "; the pod runs on at " + v.peer
	}
	return ready
}

// GuestReady reports whether the guest of a home pod is ready where it runs, whatever home makes of it.
func (n *Node) GuestReady(namespace, pod string) bool {
	t := n.twin(namespace)
	if t == nil {
		return false
	}
	guest := n.view.Pods.Get(t.name, pod)
	if guest == nil || guest.DeletionTimestamp != nil {
		return false
	}
	for _, c := range guest.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
