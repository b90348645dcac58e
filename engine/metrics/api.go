package metrics

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	nodeutil "k8s.io/kubernetes/pkg/util/node"
	"k8s.io/metrics/pkg/apis/metrics"
)

// podMetrics serves PodMetrics: Running pods of which all that is known of their containers, as far as there is something.
type podMetrics struct{ *Server }

// nodeMetrics serves NodeMetrics.
type nodeMetrics struct{ *Server }

var _, _ interface {
	rest.Lister
	rest.Getter
	rest.Scoper
	rest.KindProvider
	rest.SingularNameProvider
} = podMetrics{}, nodeMetrics{}

// New and the methods below implement rest.Storage and the interfaces listed above.
func (podMetrics) New() runtime.Object      { return &metrics.PodMetrics{} }
func (podMetrics) NewList() runtime.Object  { return &metrics.PodMetricsList{} }
func (podMetrics) Destroy()                 {}
func (podMetrics) Kind() string             { return "PodMetrics" }
func (podMetrics) NamespaceScoped() bool    { return true }
func (podMetrics) GetSingularName() string  { return "" } // as upstream: "podmetrics" then, and "pod" stays what it is
func (nodeMetrics) New() runtime.Object     { return &metrics.NodeMetrics{} }
func (nodeMetrics) NewList() runtime.Object { return &metrics.NodeMetricsList{} }
func (nodeMetrics) Destroy()                {}
func (nodeMetrics) Kind() string            { return "NodeMetrics" }
func (nodeMetrics) NamespaceScoped() bool   { return false }
func (nodeMetrics) GetSingularName() string { return "" }

// List gives the pods of the request's namespace, or of all.
func (s podMetrics) List(ctx context.Context, options *metainternal.ListOptions) (runtime.Object, error) {
	selected, byField := selectors(options)
	pods, err := s.pods.Pods(request.NamespaceValue(ctx)).List(selected)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !byField(p) })
	items, err := s.of(ctx, pods)
	return &metrics.PodMetricsList{Items: items}, err
}

// Get gives one pod. One of which nothing is known yet is not found, as kubectl and autoscalers expect it.
func (s podMetrics) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	pod, err := s.pods.Pods(request.NamespaceValue(ctx)).Get(name)
	if err != nil {
		return nil, err
	}
	items, err := s.of(ctx, []*corev1.Pod{pod})
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, apierrors.NewNotFound(metrics.Resource("pods"), name)
	}
	return &items[0], nil
}

func (s podMetrics) of(ctx context.Context, pods []*corev1.Pod) (items []metrics.PodMetrics, err error) {
	var on []string
	for _, p := range pods {
		if usable(p) && s.worthAsking(p.Spec.NodeName) {
			on = append(on, p.Spec.NodeName)
		}
	}
	readings := s.read(ctx, on)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, p := range pods {
		if r := readings[p.Spec.NodeName]; r != nil && usable(p) {
			if m, ok := podMetricsOf(p, r.pods[p.UID]); ok {
				items = append(items, m)
			}
		}
	}
	slices.SortFunc(items, func(a, b metrics.PodMetrics) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return items, nil
}

func (s *Server) worthAsking(name string) bool {
	node, err := s.nodes.Get(name)
	return err == nil && nodeutil.IsNodeReady(node)
}

// podMetricsOf says what a pod uses, unless one of its containers that run is not known yet: an autoscaler would take the
// rest for the whole.
func podMetricsOf(pod *corev1.Pod, used map[string]use) (metrics.PodMetrics, bool) {
	m := metrics.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels, CreationTimestamp: metav1.NewTime(time.Now())},
		Window:     metav1.Duration{Duration: window},
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Running == nil {
			continue
		}
		u, ok := used[c.Name]
		if !ok {
			return m, false
		}
		if m.Timestamp.IsZero() || u.at.Before(m.Timestamp.Time) { // the whole is as old as its oldest part
			m.Timestamp = metav1.NewTime(u.at)
		}
		m.Containers = append(m.Containers, metrics.ContainerMetrics{Name: c.Name, Usage: u.list()})
	}
	return m, len(m.Containers) > 0
}

// List gives the nodes that answer.
func (s nodeMetrics) List(ctx context.Context, options *metainternal.ListOptions) (runtime.Object, error) {
	selected, byField := selectors(options)
	nodes, err := s.nodes.List(selected)
	if err != nil {
		return nil, err
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return !byField(n) })
	items, err := s.of(ctx, nodes)
	return &metrics.NodeMetricsList{Items: items}, err
}

// Get gives one node. One that does not answer is not found.
func (s nodeMetrics) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	node, err := s.nodes.Get(name)
	if err != nil {
		return nil, err
	}
	items, err := s.of(ctx, []*corev1.Node{node})
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, apierrors.NewNotFound(metrics.Resource("nodes"), name)
	}
	return &items[0], nil
}

func (s nodeMetrics) of(ctx context.Context, nodes []*corev1.Node) (items []metrics.NodeMetrics, err error) {
	var names []string
	for _, n := range nodes {
		if nodeutil.IsNodeReady(n) {
			names = append(names, n.Name)
		}
	}
	readings := s.read(ctx, names)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		r := readings[n.Name]
		if r == nil || r.node.at.IsZero() {
			continue
		}
		items = append(items, metrics.NodeMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: metav1.NewTime(time.Now())},
			Timestamp:  metav1.NewTime(r.node.at), Window: metav1.Duration{Duration: window}, Usage: r.node.list(),
		})
	}
	slices.SortFunc(items, func(a, b metrics.NodeMetrics) int { return strings.Compare(a.Name, b.Name) })
	return items, nil
}

// list is a use as Kubernetes writes it. What is more than a quantity holds was told by nobody honest.
func (u use) list() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(min(u.cpu, math.MaxInt64)), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(min(u.memory, math.MaxInt64)), resource.BinarySI),
	}
}

// selectors are those of a list request; fields are metadata.name and metadata.namespace.
func selectors(options *metainternal.ListOptions) (labels.Selector, func(metav1.Object) bool) {
	selected, byField := labels.Everything(), func(metav1.Object) bool { return true }
	if options == nil {
		return selected, byField
	}
	if options.LabelSelector != nil {
		selected = options.LabelSelector
	}
	if f := options.FieldSelector; f != nil && !f.Empty() {
		byField = func(o metav1.Object) bool {
			return f.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
		}
	}
	return selected, byField
}
