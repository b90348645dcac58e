package waking

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"kith.dev/core/agree/relations/seeking"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/queue"
)

// SetupWithManager registers what reacts to pods that wait, to contracts, and to peers that come and go.
func (w *Waking) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("waking").
		Watches(&v1alpha1.Contract{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []ctrl.Request {
			if ctr, is := o.(*v1alpha1.Contract); is && ctr.Spec.Role == v1alpha1.RoleConsumer {
				return []ctrl.Request{{NamespacedName: types.NamespacedName{Name: ctr.Spec.Peer}}}
			}
			return nil
		})).
		Watches(&corev1.Pod{}, seeking.AtPace(w.sleepers), builder.WithPredicates(seeking.Matters)).
		WatchesRawSource(source.Channel(w.pokes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{NewQueue: queue.New}). // one worker: one is woken at a time
		Complete(w)
}

// Poke has a peer looked at, because its contact changed. It never waits: what is dropped when very many change comes with the next.
func (w *Waking) Poke(peer string) {
	select {
	case w.pokes <- event.GenericEvent{Object: &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: peer}}}:
	default:
	}
}
