package reflection

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	metafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/agree/kinds"
)

// Of what the budget of web is made: two pods that are ready are at bob and one is at home; others do not count.
func TestABudgetFollowsThePodsItIsFor(t *testing.T) {
	pod := func(name, node, app string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	ends := pod("ends", "kith-bob", "web", corev1.ConditionTrue)
	ends.DeletionTimestamp, ends.Finalizers = new(metav1.Now()), []string{"a/b"}
	elsewhere := pod("elsewhere", "kith-bob", "web", corev1.ConditionTrue)
	elsewhere.Namespace = "other"
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "2"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DesiredHealthy: 2, DisruptionsAllowed: 1},
	}
	core := fake.NewClientset(budget, ends, elsewhere, pod("a", "kith-bob", "web", corev1.ConditionTrue), pod("b", "kith-bob", "web", corev1.ConditionTrue),
		pod("c", "alice", "web", corev1.ConditionTrue), pod("d", "kith-bob", "web", corev1.ConditionFalse), pod("e", "alice", "api", corev1.ConditionTrue))
	scheme := metafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	home := &Home{core: core, meta: metafake.NewSimpleMetadataClient(scheme)}
	m, err := home.join(func(*kinds.Kind, metav1.Object, metav1.Object) {})
	if err != nil {
		t.Fatal(err)
	}
	defer m.leave()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if !cache.WaitFor(ctx, "", m.synced...) {
		t.Fatal("not everything was seen")
	}

	r, tw, it := reflector(t, home), newTwin("shop", "shop-x"), item{kinds.PodDisruptionBudget, "shop", "web"}
	s := &session{ctx: t.Context(), member: m, ready: make(chan struct{})}
	close(s.ready)
	tw.session, r.twins["shop"] = s, tw
	src := r.source(tw, s, it, nil)
	got, why, err := src.build(ctx)
	if err != nil || why != "" || got.(*policyv1.PodDisruptionBudget).Spec.MinAvailable.IntValue() != 1 {
		t.Errorf("%+v, %s, %v: want one of two at bob", got, why, err)
	}
	if err := m.informers[kinds.Pod].GetStore().Delete(pod("c", "", "", "")); err != nil {
		t.Fatal(err)
	}
	if again := r.source(tw, s, it, nil); again.stamp == src.stamp {
		t.Error("a pod at home is gone, and the budget abroad is taken for what it was")
	}

	ready, not := pod("c", "alice", "web", corev1.ConditionTrue), pod("c", "alice", "web", corev1.ConditionFalse)
	renamed := pod("c", "alice", "api", corev1.ConditionTrue)
	for name, c := range map[string]struct {
		was, is metav1.Object
		want    []item
	}{
		"is ready":           {not, ready, []item{it}},
		"is not ready":       {ready, not, []item{it}},
		"goes":               {ready, nil, []item{it}},
		"gets another label": {ready, renamed, []item{it}},
		"stays":              {ready, ready, nil},
		"comes":              {nil, not, nil},
	} {
		r.homeChanged(kinds.Pod, c.was, c.is)
		if got := drain(r); !slices.Equal(got, c.want) {
			t.Errorf("a pod at home that %s: %v, want %v", name, got, c.want)
		}
	}
}
