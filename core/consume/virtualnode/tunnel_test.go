package virtualnode

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/presence"
)

func TestANodeWithoutItsTunnelIsReadyAndTakesNoPods(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s := state{there: presence.Presence{State: presence.Reachable}, tunnel: "tunnel: no answer for 48 s"}
	all := s.conditions(nil, now)
	if c := conditionOf(all, corev1.NodeReady); c.Status != corev1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	if c := conditionOf(all, corev1.NodeNetworkUnavailable); c.Status != corev1.ConditionTrue || c.Reason != reasonTunnel || c.Message != s.tunnel {
		t.Errorf("%+v", c)
	}
	s.tunnel = ""
	if c := conditionOf(s.conditions(all, now), corev1.NodeNetworkUnavailable); c.Status != corev1.ConditionFalse {
		t.Errorf("%+v", c)
	}
}

func TestNoRequestIsSentToAPodWithoutATunnel(t *testing.T) {
	guest := &corev1.Pod{Status: running()}
	v := testView(homePod(), guest)
	v.tunnel = "tunnel: no answer for 48 s"
	down := statusOf(v)
	var ready corev1.PodCondition
	for _, c := range down.Conditions {
		if c.Type == corev1.PodReady {
			ready = c
		}
	}
	if ready.Status != corev1.ConditionFalse || ready.Reason != reasonTunnel || !strings.Contains(ready.Message, v.tunnel) || ready.LastTransitionTime.IsZero() {
		t.Errorf("%+v", ready)
	}
	if down.Phase != corev1.PodRunning || !down.ContainerStatuses[0].Ready {
		t.Errorf("%s, %+v", down.Phase, down.ContainerStatuses)
	}
	v.home.Status = down
	if again := statusOf(v); readiness(again) != corev1.ConditionFalse || again.Conditions[len(again.Conditions)-1].LastTransitionTime != down.Conditions[len(down.Conditions)-1].LastTransitionTime {
		t.Errorf("written again: %+v", again.Conditions)
	}
	if v.tunnel = ""; readiness(statusOf(v)) != corev1.ConditionTrue {
		t.Error("not Ready again")
	}
	guest.Status.Conditions[1].Status = corev1.ConditionFalse // not ready for a reason of its own
	if v.tunnel = "tunnel: no answer for 48 s"; statusOf(v).Conditions[1].Reason == reasonTunnel {
		t.Error("the guest's own reason is hidden")
	}
}

// Each change has slices and pods written again, and nothing else does.
func TestATunnelThatChangesIsToldOnce(t *testing.T) {
	n := &Node{face: face{log: slog.New(slog.DiscardHandler)}, view: noView(), pods: newInformer(func(_, _ *corev1.Pod) {})}
	for i, c := range []struct {
		why     string
		changed bool
	}{{"", false}, {"no answer for 48 s", true}, {"no answer for 49 s", false}, {"", true}, {"", false}} {
		if changed := n.SetTunnel(c.why); changed != c.changed {
			t.Errorf("%d, %q: changed %v", i, c.why, changed)
		}
	}
}
