package guests

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

// requestsOf is what the pod counts against its contract: what the scheduler reserves for it, and one pod. While a pod
// is resized that is the greater of what it has and what it is to have.
// The spec must have gone through stateRequests.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)}
	// What is said of the pod as a whole counts instead of what its containers say, where the API server knows of that
	// (KEP-2837); another one forgets it, and reserves what the containers say. So it is the greater of both.
	ways := []resourcehelper.PodResourcesOptions{{}, {SkipPodLevelResources: true}}
	if len(pod.Status.ContainerStatuses) > 0 {
		ways = append(ways, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true},
			resourcehelper.PodResourcesOptions{UseStatusResources: true, SkipPodLevelResources: true})
	}
	for _, way := range ways {
		for name, q := range resourcehelper.PodRequests(pod, way) {
			if more := out[name]; !q.IsZero() && q.Cmp(more) > 0 {
				out[name] = q.DeepCopy()
			}
		}
	}
	return out
}

// stateRequests says aloud what the API server reads into the pod: a limit without a request is a request of
// the same amount. The contract has to be asked for it before the API server is.
func stateRequests(spec *corev1.PodSpec) {
	eachContainer(spec, func(c *corev1.Container) {
		for name, limit := range c.Resources.Limits {
			if _, ok := c.Resources.Requests[name]; !ok {
				request(&c.Resources, name, limit.DeepCopy())
			}
		}
	})
	if resourcehelper.IsPodLevelResourcesSet(&corev1.Pod{Spec: *spec}) {
		podLimitsToRequests(spec)
	}
}

// podLimitsToRequests: a limit of the whole pod is its request unless its containers make requests, which
// then count instead.
func podLimitsToRequests(spec *corev1.PodSpec) {
	containers := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	for name, limit := range spec.Resources.Limits {
		_, said := spec.Resources.Requests[name]
		if _, asked := containers[name]; !said && !asked {
			request(spec.Resources, name, limit.DeepCopy())
		}
	}
}

func request(r *corev1.ResourceRequirements, name corev1.ResourceName, q resource.Quantity) {
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	r.Requests[name] = q
}

// resizable are the amounts that a running pod may change (KEP-1287).
var resizable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// resizeTo sets in pod, which runs, the amounts of want, and says whether any was another. What want does not name
// stays: in a running pod no amount can be taken away.
func resizeTo(pod, want *corev1.Pod) (changed bool) {
	set := func(has *corev1.ResourceList, wants corev1.ResourceList) {
		for _, name := range resizable {
			q, wanted := wants[name]
			old, had := (*has)[name]
			if !wanted || had && old.Cmp(q) == 0 {
				continue
			}
			if *has == nil {
				*has = corev1.ResourceList{}
			}
			(*has)[name], changed = q, true
		}
	}
	resize := func(has, wants *corev1.ResourceRequirements) {
		if has != nil && wants != nil {
			set(&has.Requests, wants.Requests)
			set(&has.Limits, wants.Limits)
		}
	}
	containers := map[string]*corev1.ResourceRequirements{} // whose names are unique in a pod
	eachContainer(&pod.Spec, func(c *corev1.Container) { containers[c.Name] = &c.Resources })
	eachContainer(&want.Spec, func(c *corev1.Container) { resize(containers[c.Name], &c.Resources) })
	resize(pod.Spec.Resources, want.Spec.Resources)
	return changed
}

// maxDebuggers bounds the ephemeral containers of a pod: nothing ever takes one away.
const maxDebuggers = 32

// ptrace is what `kubectl debug` asks for by default. At the levels that forbid it the debugger does without.
const ptrace corev1.Capability = "SYS_PTRACE"

// debuggers adds the ephemeral containers to pod that the template has and it has not. They hold no amounts of their own. said is
// what must be told of those that are added otherwise than asked for, why of the last that is not added.
func (r *rules) debuggers(pod *corev1.Pod, template *corev1.PodSpec, t *grants.Terms) (next *corev1.Pod, said []podEvent, why string) {
	next = pod
	for _, c := range ephemeral(template) {
		if slices.ContainsFunc(pod.Spec.EphemeralContainers, func(has corev1.EphemeralContainer) bool { return has.Name == c.Name }) {
			continue
		}
		tried := next.DeepCopy()
		c.ImagePullPolicy = t.Images.Pull(c.Image, c.ImagePullPolicy)
		if t.Level != v1alpha1.PodSecurityPrivileged {
			withoutRaw((*corev1.Container)(&c.EphemeralContainerCommon))
		}
		tried.Spec.EphemeralContainers = append(tried.Spec.EphemeralContainers, c)
		no := r.check(tried, t.Level)
		if no != nil && withoutPtrace(&tried.Spec.EphemeralContainers[len(tried.Spec.EphemeralContainers)-1]) {
			if no = r.check(tried, t.Level); no == nil {
				said = append(said, eventf(corev1.EventTypeNormal, "Debugger", "container %s runs without the capability %s, which level %s of this provider does not allow", c.Name, ptrace, t.Level))
			}
		}
		if no == nil {
			no = t.Images.Refuse("its image", c.Image)
		}
		switch {
		case len(tried.Spec.EphemeralContainers) > maxDebuggers:
			why = fmt.Sprintf("%s: a pod here has at most %d ephemeral containers", c.Name, maxDebuggers)
		case no != nil:
			why = fmt.Sprintf("%s: %s", c.Name, no.Message)
		default:
			next = tried
		}
	}
	return next, said, why
}

// ephemeral are those of the template, less the mounts of volumes that are not brought here.
func ephemeral(spec *corev1.PodSpec) []corev1.EphemeralContainer {
	if len(spec.EphemeralContainers) == 0 {
		return nil
	}
	spec = spec.DeepCopy()
	debuggers := spec.EphemeralContainers
	forgetHomeIdentity(spec)
	for i := range debuggers {
		debuggers[i].VolumeMounts = slices.DeleteFunc(debuggers[i].VolumeMounts, func(m corev1.VolumeMount) bool {
			return !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		})
	}
	return debuggers
}

// withoutPtrace takes that capability out, and says whether it was there.
func withoutPtrace(c *corev1.EphemeralContainer) bool {
	if c.SecurityContext == nil || c.SecurityContext.Capabilities == nil {
		return false
	}
	caps := c.SecurityContext.Capabilities
	before := len(caps.Add)
	caps.Add = slices.DeleteFunc(slices.Clone(caps.Add), func(c corev1.Capability) bool { return c == ptrace })
	return len(caps.Add) < before
}
