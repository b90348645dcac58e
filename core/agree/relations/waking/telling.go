package waking

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/trust/wire"
)

// say writes how far waking a machine is, and says so to the pods that wait for it.
func (w *Waking) say(ctx context.Context, a *asleep, pods []*corev1.Pod, state v1alpha1.WakeState, message string) error {
	message = wire.Line(message, 512)
	changed := a.is.State != state || state == v1alpha1.WakeSent
	if changed {
		now := metav1.Now()
		a.is.Since = &now
		w.mu.Lock()
		delete(w.told, a.peer.Name)
		w.mu.Unlock()
	}
	a.is.State, a.is.Message = state, message
	if was := a.ctr.Status.Wake; was == nil || !equality.Semantic.DeepEqual(*was, *a.is) {
		ctr, err := w.put(ctx, a.ctr, a.is)
		if err != nil {
			return err
		}
		a.ctr = ctr
	}
	if changed && state != v1alpha1.WakeSent {
		w.Log.Info("a peer is not woken", "peer", a.peer.Name, "state", string(state), "why", message)
	}
	w.tell(a, pods)
	return nil
}

// tell writes an event about each pod that was not told of this state yet.
func (w *Waking) tell(a *asleep, pods []*corev1.Pod) {
	w.mu.Lock()
	told := w.told[a.peer.Name]
	if told == nil {
		told = map[types.UID]bool{}
		w.told[a.peer.Name] = told
	}
	var fresh []*corev1.Pod
	for _, p := range pods {
		if !told[p.UID] && len(told) < maxTold {
			told[p.UID] = true
			fresh = append(fresh, p)
		}
	}
	w.mu.Unlock()
	reason := "Wake" + string(a.is.State)
	if a.is.State == v1alpha1.WakeSent {
		reason = "Waking"
	}
	for _, p := range fresh {
		w.Events.Eventf(p, nil, corev1.EventTypeNormal, reason, "Wake", "%s", a.is.Message)
	}
}
