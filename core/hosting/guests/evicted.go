package guests

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type guestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// evictions queues what happens to guests, and has the reconciler note first how those were last that something here evicts: once
// they are gone, nothing else tells them from pods that are lost, which are made again.
func (r *Reconciler) evictions() handler.Funcs {
	look := func(o client.Object, gone bool, queue guestQueue) {
		r.noteEviction(o, gone)
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	return handler.Funcs{ // Create is also for what was there before this process
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue guestQueue) { look(e.Object, false, queue) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue guestQueue) { look(e.ObjectNew, false, queue) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue guestQueue) { look(e.Object, true, queue) },
	}
}

// noteEviction: that a pod is to be evicted counts when it is being deleted, for that may still be refused; gone tells that it is
// deleted, with no grace even without a sign before.
func (r *Reconciler) noteEviction(o client.Object, gone bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.DeletionTimestamp == nil && !gone || evictionOf(pod) == nil {
		return
	}
	key := client.ObjectKeyFromObject(pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.evicted == nil {
		r.evicted = map[types.NamespacedName]*corev1.Pod{}
	}
	r.evicted[key] = pod
}

// lastEvicted is the Pod that there was last, if it was this one's and was evicted.
func (r *Reconciler) lastEvicted(o *seen) *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.evicted[o.key]; last != nil && metav1.IsControlledBy(last, o.opod) {
		return last
	}
	return nil
}

// whyEvicted is what the kubelet said when it evicted the pod, where its status does not say it.
func (r *Reconciler) whyEvicted(pod *corev1.Pod) string {
	if c := disruption(pod); c != nil && c.Message != "" {
		return c.Message
	}
	why := "the kubelet ended the pod, for what it used or what its node lacks"
	if r.Heard == nil {
		return why
	}
	for _, o := range r.Heard() {
		if e, ok := o.(*corev1.Event); ok && e.Reason == reasonEvicted && e.InvolvedObject.UID == pod.UID {
			return e.Message
		}
	}
	return why
}

func (r *Reconciler) forgetEvicted(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.evicted, key)
}
