package company

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/agree/relations/record"
	"kith.dev/core/api/v1alpha1"
)

// status is what is said of a tether at a step. Its time moves when the step does.
func status(peer *v1alpha1.Peer, step, why string) *v1alpha1.TetherStatus {
	now := metav1.Now().Rfc3339Copy()
	next := &v1alpha1.TetherStatus{Role: v1alpha1.TetherCompany, Step: step, Why: why, Since: &now, User: user(peer.Spec.ID)}
	if was := peer.Status.Tether; was != nil && was.Role == next.Role && was.Step == step && was.Since != nil {
		next.Since = was.Since
	}
	return next
}

// stepOf is at which step a tether is, and why; "" when there is none any more. ended: no contract with the laptop is left.
func stepOf(peer *v1alpha1.Peer, ended bool) (step, why string) {
	out, was := peer.Status.Outgoing, ""
	if t := peer.Status.Tether; t != nil && t.Role == v1alpha1.TetherCompany {
		was = t.Step
	}
	had := was == v1alpha1.TetherStepTethered || was == v1alpha1.TetherStepLost
	switch state := record.StateOf(out); {
	case peer.Spec.Tethered == nil && (was == "" || ended):
		return "", ""
	case peer.Spec.Tethered == nil:
		return v1alpha1.TetherStepEnding, "what this cluster runs there is brought away"
	case refused(peer):
		return was, peer.Status.Tether.Why
	case state == v1alpha1.StateConnected:
		return v1alpha1.TetherStepTethered, ""
	case state == v1alpha1.StateUnreachable:
		return v1alpha1.TetherStepLost, out.Why
	case had:
		return v1alpha1.TetherStepLost, out.Why
	case peer.Spec.Request != nil && peer.Spec.Request.Attempt > out.Attempt:
		return v1alpha1.TetherStepAccepted, out.Why
	}
	return v1alpha1.TetherStepJoining, out.Why
}

// pauses are the growing delays between an answer and the next request to a tethered laptop whose contract has ended.
var pauses = []time.Duration{0, time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute}

func pause(n int) time.Duration { return pauses[min(n, len(pauses)-1)] }

// unanswered reports whether a tethered laptop has to be asked again: its contract ended, or there was none, and no question is under
// way. One that does not answer at all needs none: relations goes on with the question that there is.
func unanswered(peer *v1alpha1.Peer, ended bool) bool {
	out := peer.Status.Outgoing
	return peer.Spec.Tethered != nil && !refused(peer) && ended && peer.Spec.Request != nil && peer.Spec.Request.Attempt <= out.Attempt &&
		out.RequestID == "" && record.Finished(out)
}
