package offloading

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"kith.dev/core/api/v1alpha1"
)

// released counts the homes whose twins are looked at.
type released []string

func (r *released) Review(namespace string) { *r = append(*r, namespace) }

func world(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(&v1alpha1.NamespaceOffloading{}, &corev1.Pod{}).Build()
}

func abroad(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{
		NodeName: "kith-bob", Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}},
	}}
}

var shop = ctrl.Request{NamespacedName: types.NamespacedName{Name: "shop"}}

func TestAKeptPodIsMadeAgainOnceItsFormerSelfIsGone(t *testing.T) {
	c := world(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, abroad("web"))
	r := New(c, c, &released{}, slog.New(slog.DiscardHandler))
	pod := abroad("web")
	if err := Keep(t.Context(), c, pod); err != nil {
		t.Fatal(err)
	}
	if result, err := r.Reconcile(t.Context(), shop); err != nil || result != (ctrl.Result{}) {
		t.Fatalf("while the pod is there: %+v, %v", result, err)
	}
	if err := c.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if !stuckOrLeft().Delete(event.DeleteEvent{Object: pod}) {
		t.Error("that the pod left is no news")
	}
	if result, err := r.Reconcile(t.Context(), shop); err != nil || result != (ctrl.Result{}) {
		t.Fatalf("when the pod has gone: %+v, %v", result, err)
	}
	var home corev1.Pod
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), &home); err != nil || home.Spec.NodeName != "" || home.Labels["app"] != "web" || tolerates(&home) {
		t.Errorf("%+v, %v", home, err)
	}
	var kept corev1.PodTemplateList
	if err := c.List(t.Context(), &kept); err != nil || len(kept.Items) != 0 {
		t.Errorf("%d pods are still kept, %v", len(kept.Items), err)
	}
}

func TestNewsOfPods(t *testing.T) {
	waits, runs := abroad("waits"), abroad("runs")
	waits.Spec.NodeName, waits.Spec.Tolerations = "", nil
	runs.Spec.NodeName = "alice"
	matter := stuckOrLeft()
	for _, c := range []struct {
		pod           *corev1.Pod
		changed, gone bool
	}{
		{waits, true, false}, {abroad("web"), false, true}, {runs, false, false},
	} {
		created, updated := matter.Create(event.CreateEvent{Object: c.pod}), matter.Update(event.UpdateEvent{ObjectOld: c.pod, ObjectNew: c.pod})
		if gone := matter.Delete(event.DeleteEvent{Object: c.pod}); created != c.changed || updated != c.changed || gone != c.gone {
			t.Errorf("pod %s: created %v, updated %v, gone %v", c.pod.Name, created, updated, gone)
		}
	}
}

// A namespace that goes takes its offloading along, when no pod of it is abroad any more; not when it only cannot be read.
func TestOffloadingOfANamespaceThatGoes(t *testing.T) {
	now := metav1.Now()
	going := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &now, Finalizers: []string{"kubernetes"}}}
	nso := func() *v1alpha1.NamespaceOffloading {
		return &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName, DeletionTimestamp: &now, Finalizers: []string{v1alpha1.FinalizerOffloading},
		}}
	}
	for name, c := range map[string]struct {
		objects []client.Object
		unread  client.Object // of this kind nothing can be read: it fails, and is tried again
		gone    bool
	}{
		"nothing is abroad":                {[]client.Object{going, nso()}, nil, true},
		"the namespace is gone already":    {[]client.Object{nso()}, nil, true},
		"a pod is abroad":                  {[]client.Object{going, nso(), abroad("web")}, nil, false},
		"the namespace is gone, a pod not": {[]client.Object{nso(), abroad("web")}, nil, false},
		"the namespace cannot be read":     {[]client.Object{going, nso()}, going, false},
		"its offloading cannot be read":    {[]client.Object{going, nso()}, nso(), false},
	} {
		inner := world(t, c.objects...)
		faulty := interceptor.NewClient(inner, interceptor.Funcs{Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if reflect.TypeOf(obj) == reflect.TypeOf(c.unread) {
				return errors.New("the API server is away")
			}
			return inner.Get(ctx, key, obj, opts...)
		}})
		twins := &released{}
		_, err := New(faulty, faulty, twins, slog.New(slog.DiscardHandler)).Reconcile(t.Context(), shop)
		if (err != nil) != (c.unread != nil) {
			t.Errorf("%s: %v", name, err)
		}
		err = inner.Get(t.Context(), client.ObjectKeyFromObject(nso()), nso())
		if apierrors.IsNotFound(err) != c.gone {
			t.Errorf("%s: let go: %v", name, err)
		}
		if unread := c.unread == client.Object(going); (len(*twins) == 1) == unread { // whatever else is there: they look at it themselves
			t.Errorf("%s: twins %v", name, *twins)
		}
	}
}

// The namespace controller deletes what is left once there are no pods, and looks again eight seconds later at what has finalizers: by
// then it has none.
func TestOffloadingHoldsNoNamespaceThatGoes(t *testing.T) {
	now := metav1.Now()
	going := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &now, Finalizers: []string{"kubernetes"}}}
	nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName, Finalizers: []string{v1alpha1.FinalizerOffloading, "somebody/else"},
	}}
	pod := abroad("web")
	c := world(t, going, nso, pod)
	r := New(c, c, &released{}, slog.New(slog.DiscardHandler))
	for _, gone := range []bool{false, true} {
		if gone {
			if err := c.Delete(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.Reconcile(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
		want := []string{v1alpha1.FinalizerOffloading, "somebody/else"}
		if gone {
			want = want[1:]
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); err != nil || !reflect.DeepEqual(nso.Finalizers, want) {
			t.Errorf("its pods are gone: %v; finalizers %v, %v", gone, nso.Finalizers, err)
		}
	}
}

func TestTheEndOfAnOffloadingWaitsForTheLastPodAbroad(t *testing.T) {
	now := metav1.Now()
	nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName, DeletionTimestamp: &now, Finalizers: []string{v1alpha1.FinalizerOffloading},
	}}
	web, bare, home := abroad("web"), abroad("bare"), abroad("home")
	web.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}}
	home.Spec.NodeName = "alice"
	for _, pod := range []*corev1.Pod{web, bare} {
		pod.Finalizers = []string{"test/peer-is-away"}
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelOffload: "true"}}}
	c := world(t, ns, nso, web, bare, home)
	twins := &released{}
	r := New(c, c, twins, slog.New(slog.DiscardHandler))
	get := func(obj client.Object) error { return c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj) }
	step := func() {
		t.Helper()
		if result, err := r.Reconcile(t.Context(), shop); err != nil || result != (ctrl.Result{}) {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	for _, pod := range []*corev1.Pod{web, bare} {
		for range 2 {
			step()
			if err := errors.Join(get(web), get(bare), get(ns), get(nso)); len(*twins) > 0 || web.DeletionTimestamp == nil || bare.DeletionTimestamp == nil || ns.Labels[v1alpha1.LabelOffload] != "" {
				t.Fatalf("while %s is abroad: %v, twins %v", pod.Name, err, *twins)
			}
		}
		pod.Finalizers = nil
		if err := c.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if err := get(nso); !apierrors.IsNotFound(err) || len(*twins) != 1 {
		t.Errorf("it is not over: %v, twins %v", err, *twins)
	}
	if err := get(web); !apierrors.IsNotFound(err) {
		t.Errorf("what a controller makes again was made again: %v", err)
	}
	if err := errors.Join(get(bare), get(home)); err != nil || bare.Spec.NodeName != "" || home.DeletionTimestamp != nil {
		t.Errorf("%v, %s on %q", err, bare.Name, bare.Spec.NodeName)
	}
}

// budget refuses evictions as the API server does while it holds, and counts those that were asked.
type budget struct {
	client.WithWatch
	holds error
	asked atomic.Int32 // pods are taken side by side
}

func (b *budget) SubResource(name string) client.SubResourceClient {
	if name != "eviction" {
		return b.WithWatch.SubResource(name)
	}
	return evictions{b.WithWatch.SubResource(name), b}
}

type evictions struct {
	client.SubResourceClient
	b *budget
}

func (e evictions) Create(ctx context.Context, pod, eviction client.Object, opts ...client.SubResourceCreateOption) error {
	e.b.asked.Add(1)
	if of, ok := eviction.(*policyv1.Eviction); !ok || *of.DeleteOptions.Preconditions.UID != pod.GetUID() {
		return errors.New("another pod of the name would be evicted")
	}
	if e.b.holds != nil {
		return e.b.holds
	}
	return e.SubResourceClient.Create(ctx, pod, eviction, opts...)
}

// refusedBy is how the API server refuses (pkg/registry/core/pod/storage/eviction.go in Kubernetes).
func refusedBy(text string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: text})
	return err
}

func going() (*corev1.Namespace, *v1alpha1.NamespaceOffloading) {
	nso := offloaded(v1alpha1.NamespaceOffloadingSpec{})
	nso.DeletionTimestamp, nso.Finalizers = new(metav1.Now()), []string{v1alpha1.FinalizerOffloading}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelOffload: "true"}}}, nso
}

// A cache lists pods in any order: what is said of them is written anew when something changed, not at each look.
func TestWhatBudgetsHoldIsSaidInOneOrder(t *testing.T) {
	one, two := abroad("one"), abroad("two")
	for _, pod := range []*corev1.Pod{one, two} {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}}
	}
	b := &budget{WithWatch: world(t, one, two), holds: refusedBy("needs 2")}
	var said [2][]string
	for i, pods := range [][]corev1.Pod{{*one, *two}, {*two, *one}} {
		var err error
		if said[i], err = bringHome(t.Context(), b, pods, false); err != nil || len(said[i]) != 2 {
			t.Fatalf("%v: %q", err, said[i])
		}
	}
	if !slices.Equal(said[0], said[1]) {
		t.Errorf("%q, then %q", said[0], said[1])
	}
}

// Who brings a namespace home takes its pods from a node, so budgets hold, and the status says which; until somebody forces it.
func TestDisruptionBudgetsHoldWhenPodsComeHome(t *testing.T) {
	const why = "The disruption budget web needs 2 healthy pods and has 2 currently"
	for name, c := range map[string]struct {
		no    error
		says  string // of the condition
		fails bool
	}{
		"a budget":                   {refusedBy(why), why, false},
		"two budgets":                {apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")), manyBudgets, false},
		"an API server that is busy": {apierrors.NewTooManyRequests("slow down", 1), "", true},
		"an API server that is away": {errors.New("connection refused"), "", true},
	} {
		ns, nso := going()
		web := abroad("web")
		web.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}}
		b := &budget{WithWatch: world(t, ns, nso, web), holds: c.no}
		r := New(b, b, &released{}, slog.New(slog.DiscardHandler))
		condition := func() string {
			t.Helper()
			if err := b.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if no := meta.FindStatusCondition(nso.Status.Conditions, ConditionPodsEvicted); no != nil {
				return no.Message
			}
			return ""
		}
		result, err := r.Reconcile(t.Context(), shop)
		if (err != nil) != c.fails || !c.fails && result.RequeueAfter != budgetPause || b.asked.Load() != 1 {
			t.Errorf("%s: %+v, %v after %d evictions", name, result, err, b.asked.Load())
		}
		if got := condition(); c.says == "" && got != "" || !strings.Contains(got, c.says) || c.says != "" && !strings.Contains(got, "pod web stays at bob") {
			t.Errorf("%s: the status says %q", name, got)
		}
		version := nso.ResourceVersion
		_, _ = r.Reconcile(t.Context(), shop)
		if condition(); nso.ResourceVersion != version {
			t.Errorf("%s: what it says already was written again", name)
		}
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(web), web); err != nil || web.DeletionTimestamp != nil {
			t.Fatalf("%s: the pod was taken all the same: %v", name, err)
		}

		// Forced, nobody is asked.
		b.asked.Store(0)
		metav1.SetMetaDataAnnotation(&nso.ObjectMeta, v1alpha1.AnnotationForce, "true")
		if err := b.Update(t.Context(), nso); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reconcile(t.Context(), shop); err != nil || b.asked.Load() != 0 || condition() != "" {
			t.Errorf("%s: forced: %v, %d evictions, %q", name, err, b.asked.Load(), condition())
		}
		if err := b.Get(t.Context(), client.ObjectKeyFromObject(web), web); !apierrors.IsNotFound(err) {
			t.Errorf("%s: forced, the pod is there: %v", name, err)
		}
	}
}

// A bare pod that a budget holds may do its work meanwhile; it is not to be done again.
func TestWhatEndsWhileABudgetHoldsItIsNotMadeAgain(t *testing.T) {
	ns, nso := going()
	once := abroad("once")
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	b := &budget{WithWatch: world(t, ns, nso, once), holds: refusedBy("The disruption budget once needs 1 healthy pods and has 1 currently")}
	r := New(b, b, &released{}, slog.New(slog.DiscardHandler))
	kept := func() int {
		var all corev1.PodTemplateList
		if err := b.List(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		return len(all.Items)
	}
	step := func() {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
	}
	if step(); kept() != 1 {
		t.Fatalf("%d pods are kept", kept())
	}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(once), once); err != nil {
		t.Fatal(err)
	}
	once.Status.Phase = corev1.PodSucceeded
	if err := b.Status().Update(t.Context(), once); err != nil {
		t.Fatal(err)
	}
	b.holds = nil // none is asked for a pod that ended
	for range 3 {
		step()
	}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(once), once); !apierrors.IsNotFound(err) || kept() != 0 {
		t.Errorf("it was made again: %v, %d are kept", err, kept())
	}
	if err := b.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); !apierrors.IsNotFound(err) {
		t.Errorf("it is not over: %v", err)
	}
}

// All that the scheduler would say of such a pod is that it does not tolerate a taint.
func TestAPodWithAClaimThatAsksForAPeerSaysWhyItWaits(t *testing.T) {
	pod := func(name string, change func(*corev1.PodSpec)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}}
		change(&p.Spec)
		return p
	}
	required := func(key string, values ...string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}}}}}
		}
	}
	selects := func(key, value string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{key: value} }
	}
	says := map[string]string{
		"host": "kith-bob, but its volume claims", "any": "a peer, but its volume claims", "affinity": "kith-bob or kith-carol, but its volume claims",
		"remote": "a peer, but its volume claims", "device": "kith-bob, but spec.resourceClaims[0] (gpu) stands for devices of home's nodes",
	}
	c := world(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelOffload: "true"}}},
		pod("host", selects(corev1.LabelHostname, "kith-bob")), pod("any", selects(LabelVirtual, "true")), pod("affinity", required(corev1.LabelHostname, "kith-bob", "kith-carol")),
		pod("device", func(s *corev1.PodSpec) {
			selects(corev1.LabelHostname, "kith-bob")(s)
			s.Volumes, s.ResourceClaims = nil, []corev1.PodResourceClaim{{Name: "gpu"}}
		}),
		pod("home", selects(corev1.LabelHostname, "alice")), pod("either", required(corev1.LabelHostname, "kith-bob", "alice")), pod("anywhere", func(*corev1.PodSpec) {}),
		pod("remote", func(s *corev1.PodSpec) { // as the admission policy leaves it with the strategy Remote
			selects(LabelVirtual, "true")(s)
			s.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}}
		}))
	r, recorder := New(c, c, &released{}, slog.New(slog.DiscardHandler)), events.NewFakeRecorder(10)
	r.events = recorder
	for range 4 { // makes the NamespaceOffloading first, and says it once
		if _, err := r.Reconcile(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(recorder.Events); n != len(says) {
		t.Errorf("%d events", n)
	}
	var pods corev1.PodList
	if err := c.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		text := ""
		for _, condition := range p.Status.Conditions {
			text += condition.Message
		}
		if want := says[p.Name]; want == "" && text != "" || want != "" && !strings.Contains(text, "it asks for "+want) || strings.Contains(text, "--spec") {
			t.Errorf("%s: %q", p.Name, text)
		}
	}
}

// Namespaces and NamespaceOffloadings come by two watches, in any order: what the cache does not show yet of the one ends, or begins,
// no offloading.
func TestAnOffloadingFollowsTheLabelAndNotACacheThatLags(t *testing.T) {
	namespace := func(labelled bool) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		if labelled {
			ns.Labels = map[string]string{v1alpha1.LabelOffload: "true"}
		}
		return ns
	}
	for name, c := range map[string]struct {
		offloaded, cached, now, want bool
	}{
		"begun, and the label is not seen yet": {true, false, true, true},
		"the owner took the label away":        {true, false, false, false},
		"ended, and the label is still seen":   {false, true, false, false},
		"the owner put the label on":           {false, true, true, true},
	} {
		objects := []client.Object{namespace(c.cached)}
		nso := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.NamespaceOffloadingName, UID: "one"}}
		nso.Status.Conditions = []metav1.Condition{{Type: conditionLabelled, Status: metav1.ConditionTrue}}
		if c.offloaded {
			objects = append(objects, nso)
		}
		cache := world(t, objects...)
		if _, err := New(cache, world(t, namespace(c.now)), &released{}, slog.New(slog.DiscardHandler)).Reconcile(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
		if err := cache.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
