package guests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
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
	eachContainer(spec, func(c *corev1.Container) { limitsToRequests(&c.Resources) })
	if resourcehelper.IsPodLevelResourcesSet(&corev1.Pod{Spec: *spec}) {
		podLimitsToRequests(spec)
	}
}

func limitsToRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			request(r, name, limit.DeepCopy())
		}
	}
}

// podLimitsToRequests: a limit of the whole pod is its request unless its containers make requests, which
// then count instead.
func podLimitsToRequests(spec *corev1.PodSpec) {
	for name, limit := range spec.Resources.Limits {
		if _, ok := spec.Resources.Requests[name]; ok {
			continue
		}
		asked := false
		eachContainer(spec, func(c *corev1.Container) {
			_, ok := c.Resources.Requests[name]
			asked = asked || ok
		})
		if !asked {
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
