package virtualnode

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func conditionOf(all []corev1.NodeCondition, t corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range all {
		if c.Type == t {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func TestLostLinkShowsAtOnceAndCountsAfterGrace(t *testing.T) {
	const grace = 20 * time.Second
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	s := state{reachable: true, published: true}
	connected := s.conditions("bob", nil, at(0))

	if healed, changed := s.link(false, "NoHandshake", "tunnel: no handshake for 40 s", at(10)); healed || !changed {
		t.Errorf("a loss: healed %v, changed %v", healed, changed)
	}
	if _, changed := s.link(false, "NoHandshake", "tunnel: no handshake for 40 s", at(12)); changed {
		t.Error("what was said already is a change, and so a write of the node")
	}
	s.link(false, "NoHandshake", "tunnel: no handshake for 45 s", at(15)) // told again: the grace goes on
	if left := s.expire(grace, at(15)); left != 15*time.Second {
		t.Errorf("%s of the grace left, want 15 s", left)
	}
	during := s.conditions("bob", connected, at(15))
	if c := conditionOf(during, corev1.NodeReady); c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Time.Equal(at(0)) {
		t.Errorf("Ready within the grace: %+v", c)
	}
	if c := conditionOf(during, PeerReachable); c.Status != corev1.ConditionFalse || c.Reason != "NoHandshake" {
		t.Errorf("PeerReachable within the grace: %+v", c)
	}

	if left := s.expire(grace, at(30)); left != 0 || s.published {
		t.Errorf("after the grace: %s left, published %v", left, s.published)
	}
	after := s.conditions("bob", during, at(30))
	c := conditionOf(after, corev1.NodeReady)
	if c.Status != corev1.ConditionFalse || c.Reason != reasonUnreachable || c.Message != "tunnel: no handshake for 45 s" || !c.LastTransitionTime.Time.Equal(at(30)) {
		t.Errorf("Ready after the grace: %+v", c)
	}

	if healed, changed := s.link(true, "", "", at(40)); !healed || !changed {
		t.Errorf("the return: healed %v, changed %v", healed, changed)
	}
	if c := conditionOf(s.conditions("bob", after, at(40)), corev1.NodeReady); c.Status != corev1.ConditionTrue {
		t.Errorf("Ready after the return: %+v", c)
	}
	if healed, _ := s.link(true, "", "still there", at(41)); healed {
		t.Error("healed twice")
	}
}

// A peer that hangs is found after a while, of which nothing was heard of it already: that counts.
func TestTheGraceCountsFromTheLastSignOfLife(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s := state{reachable: true, published: true}
	s.link(false, "PeerUnreachable", "no answer", now.Add(-11*time.Second))
	if left := s.expire(lostAfter, now); left != time.Second {
		t.Errorf("%s of the grace left, want 1 s", left)
	}
	if s.expire(lostAfter, now.Add(time.Second)); s.published {
		t.Error("it is Ready still")
	}
}
