package offloading

import (
	"context"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
)

// What waits and could go to a closed peer is made again for those that are open, by who made it; and so is what was made for others than are open now.
func TestPodsThatWaitAreMadeAgainAsTheBudgetStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		anyPeer := corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}
		only := func(peer string) corev1.Toleration {
			return corev1.Toleration{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpEqual, Value: peer}
		}
		wide := corev1.Toleration{Operator: corev1.TolerationOpExists}
		of := func(kind, name string, tolerations ...corev1.Toleration) *corev1.Pod {
			p := pending(name, tolerations...)
			p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
			if kind != "" {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "owner", UID: "u", Controller: new(true)}}
			}
			return p
		}
		fenced := func(pod *corev1.Pod, open string) *corev1.Pod {
			pod.Annotations = map[string]string{v1alpha1.AnnotationFenced: open}
			return pod
		}
		unseen, gated, young, bound, claims := of("ReplicaSet", "unseen", anyPeer), of("ReplicaSet", "gated", anyPeer), of("ReplicaSet", "young", anyPeer), of("ReplicaSet", "bound", anyPeer), of("ReplicaSet", "claims", wide)
		unseen.Status.Conditions = nil
		gated.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		young.CreationTimestamp = metav1.Now()
		bound.Spec.NodeName = "kith-bob"
		claims.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "v"}}}}
		made := []*corev1.Pod{
			of("ReplicaSet", "everywhere", anyPeer), of("StatefulSet", "wide", wide), of("ReplicationController", "bob", only("bob")), of("ReplicaSet", "carol", only("carol")), of("ReplicaSet", "dave", only("dave")), of("ReplicaSet", "home"),
			of("Job", "job", anyPeer), of("", "bare", wide), unseen, gated, young, bound, claims,
			fenced(of("ReplicaSet", "now", anyPeer), "dave"), fenced(of("ReplicaSet", "before", anyPeer), ""), fenced(of("", "copied", anyPeer), "erin"),
		}
		nso := offloaded(v1alpha1.NamespaceOffloadingSpec{Budget: &v1alpha1.NamespaceBudget{Amount: "0 EUR", Period: v1alpha1.BudgetDay}})
		objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelOffload: "true"}}}, nso}
		for _, p := range made {
			objects = append(objects, p)
		}
		var bindsFirst string
		c := interceptor.NewClient(world(t, objects...), interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			is := new(client.DeleteOptions).ApplyOptions(options).Preconditions
			if is == nil || is.UID == nil || *is.UID != o.GetUID() || is.ResourceVersion == nil || *is.ResourceVersion != o.GetResourceVersion() {
				t.Errorf("%s is deleted, whatever became of it: %+v", o.GetName(), is)
			}
			if o.GetName() == bindsFirst {
				return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, o.GetName(), nil)
			}
			return c.Delete(ctx, o, options...)
		}})
		r, recorder := New(c, c, &released{}, slog.New(slog.DiscardHandler)), events.NewFakeRecorder(100)
		r.events, r.Purse = recorder, &meter{map[string]string{"bob": "EUR", "carol": "USD", "dave": ""}, big.NewRat(0, 1), time.Now()}
		want := func(when string, names ...string) {
			t.Helper()
			var list corev1.PodList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, p := range list.Items {
				left = append(left, p.Name)
			}
			slices.Sort(left)
			slices.Sort(names)
			if !slices.Equal(left, names) {
				t.Errorf("%s: left are %q, want %q", when, left, names)
			}
		}

		bindsFirst = "everywhere"
		if result, err := r.Reconcile(t.Context(), shop); err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
			t.Errorf("after a conflict: %+v, %v", result, err)
		}
		want("one was bound in between", "everywhere", "dave", "home", "job", "bare", "unseen", "gated", "young", "bound", "claims", "now", "copied")
		bindsFirst = ""
		result, err := r.Reconcile(t.Context(), shop)
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > remadeAfter {
			t.Errorf("with a young pod: %+v, %v", result, err)
		}
		want("closed", "dave", "home", "job", "bare", "unseen", "gated", "young", "bound", "claims", "now", "copied")
		time.Sleep(result.RequeueAfter)
		if _, err := r.Reconcile(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
		want("later", "dave", "home", "job", "bare", "unseen", "gated", "bound", "claims", "now", "copied")
		remade := 0
		for len(recorder.Events) > 0 {
			if strings.HasPrefix(<-recorder.Events, "Normal BudgetChanged ") {
				remade++
			}
		}
		if remade != 6 {
			t.Errorf("%d are said to be made again", remade)
		}
		for name, told := range map[string]bool{"bare": true, "job": true, "now": true, "unseen": false} {
			var p corev1.Pod
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &p); err != nil {
				t.Fatal(err)
			}
			if is := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionBudget && c.Status == corev1.ConditionTrue }); is != told {
				t.Errorf("%s is told why it waits: %v", name, is)
			}
		}
		if !stuckOrLeft().CreateFunc(event.CreateEvent{Object: fenced(of("ReplicaSet", "next", anyPeer), "erin")}) {
			t.Error("a pod that was made for others than are open is no news")
		}

		// Without the budget, what was made for one goes where it may go now.
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); err != nil {
			t.Fatal(err)
		}
		nso.Spec.Budget = nil
		if err := c.Update(t.Context(), nso); err != nil {
			t.Fatal(err)
		}
		if result, err := r.Reconcile(t.Context(), shop); err != nil || result.RequeueAfter != 0 {
			t.Errorf("%+v, %v", result, err)
		}
		want("open", "dave", "home", "job", "bare", "unseen", "gated", "bound", "claims", "copied")
	})
}
