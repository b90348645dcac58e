package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// places are alice's nodes, and the words for them.
var places = []struct{ word, node string }{{"abroad", abroad}, {"at home", "alice"}}

// singlePods makes one pod at a time, abroad and at home by turns.
func singlePods(ctx context.Context, r *rig) error {
	seen, stop, err := watchPods(ctx, r.alice, namespace)
	if err != nil {
		return err
	}
	defer stop()
	for i := range 2 * r.rounds {
		var ready, gone [2]time.Duration
		for k := range places {
			at := (i + k) % 2 // each goes first half of the time
			name := fmt.Sprintf("one-%d-%d", i, at)
			began := time.Now()
			if _, err := r.alice.kube.CoreV1().Pods(namespace).Create(ctx, pod(name, places[at].node, echo()), metav1.CreateOptions{}); err != nil {
				return err
			}
			if ready[at], err = seen.until(ctx, began, "pod "+name+" Ready", func(s pods) bool { return s[name] }); err != nil {
				return err
			}
			began = time.Now()
			if err := r.alice.kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			if gone[at], err = seen.until(ctx, began, "pod "+name+" gone", func(s pods) bool { return len(s) == 0 }); err != nil {
				return err
			}
		}
		r.report.Pair("one pod Ready", "s", "abroad", ready[0].Seconds(), "at home", ready[1].Seconds())
		r.report.Took("one pod Ready, abroad - at home", ready[0]-ready[1])
		r.report.Pair("one pod deleted", "s", "abroad", gone[0].Seconds(), "at home", gone[1].Seconds())
	}
	return nil
}

// manyPods makes a Deployment of real pods, abroad and at home by turns.
func manyPods(ctx context.Context, r *rig) error {
	seen, stop, err := watchPods(ctx, r.alice, namespace)
	if err != nil {
		return err
	}
	defer stop()
	routes := []route{{"abroad", r.alice, namespace, abroad, seen}, {"at home", r.alice, namespace, "alice", seen}}
	for i := range max(1, r.rounds/4) {
		if err := r.compare(ctx, i, routes, r.pods, fmt.Sprintf("Deployment of %d pods", r.pods), true); err != nil {
			return err
		}
	}
	return nil
}

// route is a way for a Deployment to come about.
type route struct {
	word      string
	at        *node
	namespace string
	node      string // its pods' node; empty: any
	seen      *podWatch
}

// compare makes a Deployment by each route and takes it away, with what all of both laptops computes for it. Which goes
// first depends on the round. Without tokens no pod gets one of its service account.
func (r *rig) compare(ctx context.Context, round int, routes []route, n int, what string, tokens bool) error {
	var ready, gone [2]time.Duration
	var cpu, cpuGone [2]float64
	for k := range routes {
		at := (round + k) % 2
		way := routes[at]
		d := deployment(fmt.Sprintf("many-%d-%d", round, at), way.node, int32(n))
		d.Spec.Template.Spec.Containers[0].Resources.Requests = small // a thousand fit into a contract
		d.Spec.Template.Spec.AutomountServiceAccountToken = &tokens
		deployments := way.at.kube.AppsV1().Deployments(way.namespace)
		r.counters(ctx, what+" "+way.word+" before")
		if round == 0 {
			go r.profile(ctx, what+" "+way.word, "profile?seconds=15")
		}
		each, err := r.usage()
		if err != nil {
			return err
		}
		before := r.cpuSeconds()
		began := time.Now()
		if _, err := deployments.Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return err
		}
		ready[at], err = way.seen.until(ctx, began, fmt.Sprintf("%d pods %s Ready", n, way.word), func(s pods) bool { return s.ready() == n })
		if err != nil {
			return err
		}
		pause(ctx, 3*time.Second) // what comes late was caused by it too
		cpu[at] = r.cpuSeconds() - before
		now, err := r.usage()
		if err != nil {
			return err
		}
		for _, p := range programs[:6] { // runc and what else comes and goes is in the sum only
			r.report.Add(fmt.Sprintf("%s: CPU time, %s, %s: %s", what, way.word, p.role, p.name), "s", now[p].cpu-each[p].cpu)
		}
		r.counters(ctx, what+" "+way.word+" Ready")
		before, began = r.cpuSeconds(), time.Now()
		if err := deployments.Delete(ctx, d.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if gone[at], err = way.seen.until(ctx, began, "all pods gone", func(s pods) bool { return len(s) == 0 }); err != nil {
			return err
		}
		pause(ctx, 3*time.Second)
		cpuGone[at] = r.cpuSeconds() - before
		r.counters(ctx, what+" "+way.word+" gone")
	}
	one, other := routes[0].word, routes[1].word
	r.report.Pair(what+": time until Ready", "s", one, ready[0].Seconds(), other, ready[1].Seconds())
	r.report.Ratio(what+": rate, "+one+" / "+other, "/s", ready[1].Seconds()/ready[0].Seconds())
	r.report.Pair(what+": CPU time of both laptops", "s", one, cpu[0], other, cpu[1])
	r.report.Pair(what+": deleted", "s", one, gone[0].Seconds(), other, gone[1].Seconds())
	r.report.Pair(what+": CPU time of deletion", "s", one, cpuGone[0], other, cpuGone[1])
	return ctx.Err()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// pods says which are there, and which of them are Ready.
type pods map[string]bool

func (s pods) ready() (n int) {
	for _, ready := range s {
		if ready {
			n++
		}
	}
	return n
}

func (s pods) any(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { _, there := s[n]; return there })
}

// podWatch follows the pods of a namespace.
type podWatch struct {
	mu      sync.Mutex
	now     pods
	changed chan struct{} // has one item when there is news
	// patience is how long until waits.
	patience time.Duration
}

func watchPods(ctx context.Context, at *node, namespace string) (*podWatch, func(), error) {
	w := &podWatch{now: pods{}, changed: make(chan struct{}, 1), patience: 5 * patience}
	ctx, stop := context.WithCancel(ctx)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(at.kube.CoreV1().RESTClient(), "pods", namespace, fields.Everything()),
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: w.set, UpdateFunc: func(_, is any) { w.set(is) }, DeleteFunc: w.unset,
		},
		Transform: func(o any) (any, error) { // the benchmark's own memory and time
			if p, ok := o.(*corev1.Pod); ok {
				p.Spec, p.ManagedFields, p.Annotations, p.Labels = corev1.PodSpec{}, nil, nil, nil
			}
			return o, nil
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		stop()
		return nil, nil, ctx.Err()
	}
	return w, stop, nil
}

func (w *podWatch) set(o any) {
	if p, ok := o.(*corev1.Pod); ok {
		w.tell(func() { w.now[p.Name] = isReady(p) })
	}
}

func (w *podWatch) unset(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if p, ok := o.(*corev1.Pod); ok {
		w.tell(func() { delete(w.now, p.Name) })
	}
}

func (w *podWatch) tell(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *podWatch) are(what func(pods) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return what(w.now)
}

// until waits until the pods are so, and tells how long after began that was.
func (w *podWatch) until(ctx context.Context, began time.Time, what string, so func(pods) bool) (time.Duration, error) {
	late := time.After(w.patience)
	for {
		select {
		case <-w.changed:
			if w.are(so) {
				return time.Since(began), nil
			}
		case <-late:
			w.mu.Lock()
			defer w.mu.Unlock()
			return 0, fmt.Errorf("not within %s: %s; there are %d pods, %d Ready", w.patience, what, len(w.now), w.now.ready())
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (w *podWatch) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.now))
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (r *rig) ensureNamespace(ctx context.Context) error {
	for _, n := range []*node{r.alice, r.bob} { // bob's own is for pods of the plain path
		name := namespace
		if n == r.bob {
			name = "plain"
		}
		_, err := n.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		// Pods are refused until their namespace has this.
		if _, err := until(ctx, "the default ServiceAccount", func() bool {
			_, err := n.kube.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err == nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// echo has no readiness probe: a probe's period would be what is measured.
func echo() corev1.Container { return container("echo", "kith.dev/echo:1") }

var small = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi")}

func container(name, image string, args ...string) corev1.Container {
	return corev1.Container{Name: name, Image: image, Args: args, ImagePullPolicy: corev1.PullIfNotPresent,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("8Mi")}}}
}

// load asks for its part of the processors: with a request as small as the others', the kernel would let it wait behind all that the lab runs, and
// what it does not fetch in time is dropped.
func load() corev1.Container {
	c := container("load", "kith.dev/load:1", "serve")
	c.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("300m")
	return c
}

func pod(name, node string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: podSpec(node, containers...)}
}

func podSpec(node string, containers ...corev1.Container) corev1.PodSpec {
	grace := int64(1)
	s := corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: containers}
	if node != "" {
		s.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	return s
}

// prefer has pods go to a node while it is there.
func prefer(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight:     100,
		Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}},
	}}}}
}

func deployment(name, node string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(node, echo())},
	}}
}
