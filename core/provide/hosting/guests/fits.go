package guests

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// conditionTaints are the taints that the node lifecycle controller makes of a node's conditions (nodeConditionToTaintKeyStatusMap in
// k8s.io/kubernetes/pkg/controller/nodelifecycle), and takes away again.
var conditionTaints = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	key       string
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
}

// taintsOf are the node's taints, with those that say what else is true of it as that is now: while nothing decides nobody keeps them in
// step.
func taintsOf(node *corev1.Node) []corev1.Taint {
	derived := map[string]bool{corev1.TaintNodeUnschedulable: true}
	for _, c := range conditionTaints {
		derived[c.key] = true
	}
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return derived[t.Key] })
	if node.Spec.Unschedulable {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, is := range node.Status.Conditions {
		for _, c := range conditionTaints {
			if c.condition == is.Type && c.status == is.Status {
				taints = append(taints, corev1.Taint{Key: c.key, Effect: corev1.TaintEffectNoSchedule})
			}
		}
	}
	return taints
}

// place is a node with what runs there.
type place struct {
	node  *corev1.Node
	used  corev1.ResourceList
	ports []corev1.ContainerPort // of the host
}

// take counts a pod that is bound to the place.
func (p *place) take(pod *corev1.Pod) {
	if p.used == nil {
		p.used = corev1.ResourceList{}
	}
	// Of one that is resized the greater of what it has and what it is to have, as the scheduler counts (KEP-1287).
	more := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
	more[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	for name, q := range more {
		sum := p.used[name].DeepCopy()
		sum.Add(q)
		p.used[name] = sum
	}
	p.ports = append(p.ports, hostPorts(pod)...)
}

// refuses says why the pod cannot run there, in the scheduler's words; nothing when it can. It asks what the scheduler's filters ask of one
// node, in their order, and like them stops at the first that says no. Not asked is what guests cannot have: claims, affinity between
// pods, spreading.
func (p *place) refuses(pod *corev1.Pod) []string {
	taints := taintsOf(p.node)
	if p.node.Spec.Unschedulable && !tolerated(pod, taints, corev1.TaintNodeUnschedulable) {
		return []string{"node(s) were unschedulable"}
	}
	if !tolerated(pod, taints) {
		return []string{"node(s) had untolerated taint(s)"}
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(p.node); err != nil || !match {
		return []string{"node(s) didn't match Pod's node affinity/selector"}
	}
	for _, want := range hostPorts(pod) {
		if slices.ContainsFunc(p.ports, func(has corev1.ContainerPort) bool { return collide(want, has) }) {
			return []string{"node(s) didn't have free ports for the requested pod ports"}
		}
	}
	return p.lacks(pod)
}

// lacks names what there is too little of.
func (p *place) lacks(pod *corev1.Pod) (reasons []string) {
	wants := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	wants[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	for name, want := range wants {
		sum := p.used[name].DeepCopy()
		sum.Add(want)
		has := p.node.Status.Allocatable[name]
		switch {
		case want.IsZero() || sum.Cmp(has) <= 0:
		case name == corev1.ResourcePods:
			reasons = append(reasons, "Too many pods")
		default:
			reasons = append(reasons, fmt.Sprintf("Insufficient %s", name))
		}
	}
	return reasons
}

// tolerated reports whether the pod may run where these taints are; of those with the keys, if some are given.
func tolerated(pod *corev1.Pod, taints []corev1.Taint, keys ...string) bool {
	_, not := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && (len(keys) == 0 || slices.Contains(keys, t.Key))
	}, false)
	return !not
}

// hostPorts are those of the containers that run while the pod does.
func hostPorts(pod *corev1.Pod) (ports []corev1.ContainerPort) {
	eachContainer(&pod.Spec, func(c *corev1.Container) {
		i := slices.IndexFunc(pod.Spec.InitContainers, func(init corev1.Container) bool { return init.Name == c.Name })
		if i >= 0 && ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
			return
		}
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				ports = append(ports, port)
			}
		}
	})
	return ports
}

// collide reports whether one host cannot open both.
func collide(a, b corev1.ContainerPort) bool {
	all := func(ip string) bool { return ip == "" || ip == "0.0.0.0" }
	return a.HostPort == b.HostPort && cmp.Or(a.Protocol, corev1.ProtocolTCP) == cmp.Or(b.Protocol, corev1.ProtocolTCP) &&
		(a.HostIP == b.HostIP || all(a.HostIP) || all(b.HostIP))
}

// choose gives the first place where the pod can run, or why there is none, as the scheduler would say it (FitError in
// k8s.io/kubernetes/pkg/scheduler/framework).
func choose(pod *corev1.Pod, places []*place) (*place, string) {
	counts := map[string]int{}
	for _, p := range places {
		reasons := p.refuses(pod)
		if len(reasons) == 0 {
			return p, ""
		}
		for _, reason := range reasons {
			counts[reason]++
		}
	}
	var reasons []string
	for reason, n := range counts {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(reasons)
	why := fmt.Sprintf("0/%d nodes are available:", len(places))
	if len(reasons) > 0 {
		why += " " + strings.Join(reasons, ", ") + "."
	}
	if ptr.Deref(pod.Spec.PreemptionPolicy, "") == corev1.PreemptNever {
		why += " preemption: not eligible due to preemptionPolicy=Never."
	}
	return nil, why
}
