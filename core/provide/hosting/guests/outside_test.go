package guests

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"kith.dev/core/api/v1alpha1"
)

func TestAGuestWithoutItsClassOrLabelIsDeletedAndMadeAgain(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	for name, strip := range map[string]func(*corev1.Pod){
		"class": func(p *corev1.Pod) { p.Spec.RuntimeClassName = nil },
		"other": func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("runc") },
		"label": func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelConsumer) },
		"as is": func(*corev1.Pod) {},
	} {
		twin := "shop-" + bob.Compact[:7]
		modest := &v1alpha1.OffloadedPod{ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: "p", UID: types.UID("o-p")}}
		modest.Spec.HomeNamespace = "shop"
		modest.Spec.Template.Spec = corev1.PodSpec{RuntimeClassName: ptr.To("mine"), Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		d := newProvider(t, peer.DeepCopy(), contract.DeepCopy(), modest)
		if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
			t.Fatal(err)
		}
		r, k := d.host(events.NewFakeRecorder(10)), key(twin, "p")
		r.Class, r.started = "kith-guest", true
		stripped := 0
		r.client = interceptor.NewClient(d.client.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			pod, ok := o.(*corev1.Pod)
			if ok && ptr.Deref(pod.Spec.RuntimeClassName, "") != "kith-guest" {
				t.Errorf("%s: made with class %v", name, pod.Spec.RuntimeClassName)
			}
			if ok && stripped == 0 { // a webhook of somebody's, the first time
				stripped++
				strip(pod)
				pod.Spec.NodeName = "bob"
			}
			return c.Create(ctx, o, opts...)
		}})
		step := func() {
			t.Helper()
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		step()
		var pod corev1.Pod
		err := d.client.Get(t.Context(), k, &pod)
		if there := err == nil; there != (name == "as is") {
			t.Errorf("%s: the first pod is there: %t", name, there)
		}
		if name == "as is" {
			strip := pod.DeepCopy() // taken away later
			strip.Spec.RuntimeClassName = nil
			if err := d.client.Update(t.Context(), strip); err != nil {
				t.Fatal(err)
			}
			step()
			if d.client.Get(t.Context(), k, &pod) == nil {
				t.Errorf("%s: the pod stayed when its class was taken away", name)
			}
		}
		m := r.recordOf(k)
		if wait := remakeDelay(m.remakes); wait == 0 {
			t.Errorf("%s: it is made again without a pause", name)
		}
		m.made = m.made.Add(-2 * remakeDelay(m.remakes))
		r.remember(k, m)
		step()
		if err := d.client.Get(t.Context(), k, &pod); err != nil || ptr.Deref(pod.Spec.RuntimeClassName, "") != "kith-guest" || pod.Labels[v1alpha1.LabelConsumer] == "" {
			t.Errorf("%s: made again as %v %v, %v", name, pod.Spec.RuntimeClassName, pod.Labels, err)
		}
	}
}

func TestAGuestWaitsForItsClass(t *testing.T) {
	peer, bob := peerOf("bob", 1)
	contract := contractWith("bob", "contractb")
	twin := "shop-" + bob.Compact[:7]
	modest := &v1alpha1.OffloadedPod{ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: "p", UID: types.UID("o-p")}}
	modest.Spec.HomeNamespace = "shop"
	modest.Spec.Template.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	d := newProvider(t, peer, contract, modest)
	if _, err := d.ensure(contract, bob, "shop", ""); err != nil {
		t.Fatal(err)
	}
	r, k := d.host(events.NewFakeRecorder(10)), key(twin, "p")
	r.Class, r.started = "kith-guest", true
	r.client = interceptor.NewClient(d.client.(client.WithWatch), interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New(`pod rejected: RuntimeClass "kith-guest" not found`))
	}})
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: k})
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter >= retryLater {
		t.Errorf("tried again after %s, %v", result.RequeueAfter, err)
	}
	var now v1alpha1.OffloadedPod
	if err := d.client.Get(t.Context(), k, &now); err != nil || now.Status.Phase == v1alpha1.OffloadedPodRefused {
		t.Errorf("%+v, %v", now.Status, err)
	}
}
