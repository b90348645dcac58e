package virtualnode

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/presence"
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
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	s := state{there: presence.Presence{State: presence.Reachable}}
	connected := s.conditions(nil, at(0))

	s.there = presence.Presence{State: presence.Unreachable, Why: "no answer", Heard: at(3)}
	during := s.conditions(connected, at(14))
	if c := conditionOf(during, corev1.NodeReady); c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Time.Equal(at(0)) {
		t.Errorf("Ready within the grace: %+v", c)
	}
	if c := conditionOf(during, PeerReachable); c.Status != corev1.ConditionFalse || c.Reason != reasonUnreachable {
		t.Errorf("PeerReachable within the grace: %+v", c)
	}

	after := s.conditions(during, at(15)) // 12 s after the last sign of life
	c := conditionOf(after, corev1.NodeReady)
	if c.Status != corev1.ConditionFalse || c.Reason != reasonUnreachable || c.Message != "no answer" || !c.LastTransitionTime.Time.Equal(at(15)) {
		t.Errorf("Ready after the grace: %+v", c)
	}

	s.there = presence.Presence{State: presence.Reachable}
	if c := conditionOf(s.conditions(after, at(40)), corev1.NodeReady); c.Status != corev1.ConditionTrue {
		t.Errorf("Ready after the return: %+v", c)
	}
}

// The scheduler must not choose a laptop that is about to be gone, and who asks is told that it is no failure.
func TestTheNodeOfALaptopThatGoesToSleepIsNotReadyAtOnce(t *testing.T) {
	now := time.Now()
	s := state{there: presence.Presence{State: presence.Suspended, Since: now, Heard: now, Why: "went to sleep"}}
	all := s.conditions(nil, now)
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, PeerReachable} {
		if c := conditionOf(all, kind); c.Status != corev1.ConditionFalse || c.Reason != reasonSuspended || c.Message != "went to sleep" {
			t.Errorf("%+v", c)
		}
	}
	pod := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if c := unreachable(pod, "bob", s.there).Conditions[0]; c.Status != corev1.ConditionFalse || c.Reason != reasonSuspended || c.Message != "bob went to sleep; the pod goes on when it is awake again" {
		t.Errorf("%+v", c)
	}
	n := &Node{face: face{log: slog.New(slog.DiscardHandler), state: state{there: presence.Presence{State: presence.Reachable}}}, view: noView(), pods: newInformer(func(_, _ *corev1.Pod) {})}
	for _, there := range []presence.Presence{
		{State: presence.Suspended, Heard: now},
		{State: presence.Unreachable, Heard: now, Why: "kithd ended there"},
		{State: presence.Reachable, Cause: presence.NotInStep},
	} {
		if n.SetPresence(there); !n.frozen() {
			t.Errorf("it has a grace: %+v", n.now().there)
		}
	}
	if n.SetPresence(presence.Presence{State: presence.Reachable}); n.frozen() {
		t.Errorf("%+v", n.now().there)
	}
	s.there = presence.Presence{State: presence.Reachable}
	if c := conditionOf(s.conditions(all, now), corev1.NodeReady); c.Status != corev1.ConditionTrue {
		t.Errorf("%+v", c)
	}
}

// A node that were not Ready would get no pod, and nothing would wake the peer.
func TestTheNodeOfAPeerThatSleepsIsReady(t *testing.T) {
	s := state{there: presence.Presence{State: presence.Reachable, Asleep: true}}
	all := s.conditions(nil, time.Now())
	if c := conditionOf(all, corev1.NodeReady); c.Status != corev1.ConditionTrue || c.Reason != reasonAsleep {
		t.Errorf("%+v", c)
	}
	if c := conditionOf(all, PeerReachable); c.Status != corev1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	n := &Node{face: face{log: slog.New(slog.DiscardHandler), state: s}, view: noView(), pods: newInformer(func(_, _ *corev1.Pod) {})}
	changed := n.changed.Wait()
	n.SetPresence(presence.Presence{State: presence.Reachable})
	select {
	case <-changed: // its status is written anew
	default:
		t.Error("that it is awake does not show")
	}
}

// Its contracts are compared anew when a peer is back, and that may fail: it is as much away as before.
func TestAnAbsenceThatGoesOnIsAsOldAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{face: face{log: slog.New(slog.DiscardHandler), state: state{there: presence.Presence{State: presence.Reachable}}},
			view: noView(), pods: newInformer(func(_, _ *corev1.Pod) {})}
		behind := presence.Presence{State: presence.Reachable, Cause: presence.NotInStep, Why: "its Kubernetes starts"}
		for i, step := range []struct {
			is    presence.Presence
			after time.Duration
			left  time.Duration // of the grace; 0: none runs
		}{
			{presence.Presence{State: presence.Unreachable, Why: "no answer", Heard: time.Now().Add(-9 * time.Second)}, 0, 3 * time.Second},
			{behind, time.Second, 2 * time.Second},
			{presence.Presence{State: presence.Unreachable, Why: "no answer", Heard: time.Now().Add(time.Second)}, time.Second, time.Second},
			{presence.Presence{State: presence.Reachable}, time.Second, 0},
			{behind, time.Second, 12 * time.Second}, // from now on
		} {
			time.Sleep(step.after)
			n.SetPresence(step.is)
			if left, runs := presence.Node.Left(n.now().there, time.Now()); runs != (step.left > 0) || runs && left != step.left {
				t.Errorf("%d: %s of the grace left, runs %v; want %s", i, left, runs, step.left)
			}
		}
	})
}
