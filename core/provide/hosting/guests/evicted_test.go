package guests

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
)

// What something at the provider evicts has failed for good, and home decides what follows; what is merely deleted is made again.
// The reconciler sees the Pod at its end, or not at all any more: then what was noted of it counts.
func TestWhatIsEvictedHereIsNotMadeAgain(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	ending := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = ptr.To(metav1.Now()), ptr.To[int64](30), []string{"test/ends"}
	}
	drained := func(p *corev1.Pod) { disrupted(p, "EvictionByEvictionAPI") }
	for name, c := range map[string]struct {
		pod  []func(*corev1.Pod)
		gone bool // before the reconciler looks
		want v1alpha1.OffloadedPodPhase
		why  string
	}{
		"by the kubelet": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "Usage of EmptyDir volume exceeds the limit"
		}}, false, v1alpha1.OffloadedPodFailed, "Usage of EmptyDir"},
		"by the kubelet, which an event alone says": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.UID, p.Status.Phase = "p-heard", corev1.PodSucceeded
		}}, false, v1alpha1.OffloadedPodFailed, "heard of it"},
		"by the kubelet, which nothing says": {[]func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
			false, v1alpha1.OffloadedPodFailed, "the kubelet ended the pod"},
		"by the kubelet, which a condition alone says": {[]func(*corev1.Pod){func(p *corev1.Pod) {
			p.UID, p.Status.Phase = "p-heard", corev1.PodSucceeded
			said(disrupted(p, "TerminationByKubelet"), "low on memory")
		}}, false, v1alpha1.OffloadedPodFailed, "low on memory"},
		"drained, and seen at its end": {[]func(*corev1.Pod){ending, drained, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
			false, v1alpha1.OffloadedPodFailed, "Eviction API"},
		"drained, and still running":             {[]func(*corev1.Pod){ending, drained}, false, v1alpha1.OffloadedPodAccepted, ""},
		"drained, and gone":                      {[]func(*corev1.Pod){ending, drained}, true, v1alpha1.OffloadedPodFailed, "Eviction API"},
		"drained with no grace, and gone":        {[]func(*corev1.Pod){drained}, true, v1alpha1.OffloadedPodFailed, "Eviction API"},
		"deleted, and gone":                      {[]func(*corev1.Pod){ending}, true, v1alpha1.OffloadedPodAccepted, ""},
		"to be evicted, and it is refused":       {[]func(*corev1.Pod){drained}, false, v1alpha1.OffloadedPodAccepted, ""},
		"another of the name, of an earlier one": {[]func(*corev1.Pod){ending, drained, func(p *corev1.Pod) { p.OwnerReferences[0].UID = "earlier" }}, true, v1alpha1.OffloadedPodAccepted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := mighty("p")
			o.Spec.Template.Spec.HostNetwork = false
			o.Finalizers = []string{v1alpha1.FinalizerOffloadedPod}
			o.Status.PodUID = "p-1"
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: bobsShop, Name: "p", UID: "p-1", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: "x"},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "OffloadedPod", Name: "p", UID: o.UID, Controller: ptr.To(true)}},
				},
				Spec:   o.Spec.Template.Spec,
				Status: corev1.PodStatus{Phase: corev1.PodRunning},
			}
			for _, change := range c.pod {
				change(pod)
			}
			objects := []client.Object{peer.DeepCopy(), contract.DeepCopy(), o}
			if !c.gone {
				objects = append(objects, pod)
			}
			d := newProvider(t, objects...)
			if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
				t.Fatal(err)
			}
			told := events.NewFakeRecorder(10)
			r, k := d.host(told), key(bobsShop, "p")
			r.started = true
			r.PodEvents = func() []any {
				return []any{
					&corev1.Event{Reason: "Evicted", InvolvedObject: corev1.ObjectReference{UID: "another"}, Message: "another's"},
					&corev1.Event{Reason: "Killing", InvolvedObject: corev1.ObjectReference{UID: "p-heard"}, Message: "killing"},
					&corev1.Event{Reason: "Evicted", InvolvedObject: corev1.ObjectReference{UID: "p-heard"}, Message: "heard of it"},
				}
			}
			h, queue := r.evictions(), workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
			defer queue.ShutDown()
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: pod, ObjectNew: pod}, queue)
			if c.gone {
				h.Delete(t.Context(), event.DeleteEvent{Object: pod}, queue)
			}
			if queue.Len() != 1 {
				t.Errorf("%d are queued", queue.Len())
			}
			for range 2 {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k}); err != nil {
					t.Fatal(err)
				}
			}
			var now v1alpha1.OffloadedPod
			if err := d.client.Get(t.Context(), k, &now); err != nil || now.Status.Phase != c.want || !strings.Contains(now.Status.Message, c.why) {
				t.Fatalf("%+v, %v", now.Status, err)
			}
			made := &corev1.Pod{}
			if err := d.client.Get(t.Context(), k, made); c.gone && (err == nil) != (c.want == v1alpha1.OffloadedPodAccepted) {
				t.Errorf("made again: %v", err)
			}
			if c.want != v1alpha1.OffloadedPodFailed {
				return
			}
			if f := now.Status.Final; f == nil || f.Phase != corev1.PodFailed || f.Reason != "Evicted" || now.Status.Reason != "Evicted" {
				t.Errorf("its end is %+v", f)
			}
			if used := r.allocations.Used("contractb"); !used.Cpu().IsZero() {
				t.Errorf("%v of the contract are in use", used)
			}
			// And its end at home is not held up by it.
			if err := d.client.Delete(t.Context(), &now); err != nil {
				t.Fatal(err)
			}
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.client.Get(t.Context(), k, &now); c.gone && err == nil {
				t.Errorf("it stays, with %v", now.Finalizers)
			}
		})
	}
}
