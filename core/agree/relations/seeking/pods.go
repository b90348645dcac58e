package seeking

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"kith.dev/core/api/v1alpha1"
)

// Waits reports whether a pod waits because the scheduler found no node for it.
func Waits(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !v1alpha1.Ended(pod.Status.Phase) && unplaced(pod) != nil
}

// unplaced is the scheduler's word that there is no node; nil without it.
func unplaced(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c
		}
	}
	return nil
}

// At is the peer at whose node a pod is that has not ended; "" when it is at none.
func At(pod *corev1.Pod) string {
	peer, at := v1alpha1.PeerOfNode(pod.Spec.NodeName)
	if !at || v1alpha1.Ended(pod.Status.Phase) {
		return ""
	}
	return peer
}

// bearing is what of a pod bears on what is needed of peers. Requests of a pod that runs may change, too.
type bearing struct {
	waits, goes bool
	at          string
	generation  int64
	reason      string // of one that is at a peer
}

func bears(o client.Object) (b bearing) {
	if pod, ok := o.(*corev1.Pod); ok {
		b = bearing{waits: Waits(pod), at: At(pod)}
		b.goes = b.waits && slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintPeer })
		if b.waits || b.at != "" {
			b.generation = pod.Generation
		}
		if b.at != "" {
			b.reason = pod.Status.Reason
		}
	}
	return b
}

// Matters lets those events of pods pass by which more or less is needed of peers than before.
var Matters = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return bears(e.Object) != bearing{} },
	UpdateFunc:  func(e event.UpdateEvent) bool { return bears(e.ObjectOld) != bears(e.ObjectNew) },
	DeleteFunc:  func(e event.DeleteEvent) bool { return bears(e.Object) != bearing{} },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// growing are the policies that go by what pods need.
func (s *Seeker) growing(ctx context.Context) (all []ctrl.Request) {
	var list v1alpha1.PeeringPolicyList
	if err := s.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		s.Log.Warn("the peering policies cannot be listed", "err", err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.Grow != nil {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return all
}

// AtPace has those looked at that go by what pods need, some time after a change that Matters.
func AtPace(those func(context.Context) []ctrl.Request) handler.EventHandler {
	add := func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		for _, one := range those(ctx) {
			queue.AddAfter(one, pace)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			add(ctx, q)
		},
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			add(ctx, q)
		},
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			add(ctx, q)
		},
	}
}
