package guests

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	schedulingv1ac "k8s.io/client-go/applyconfigurations/scheduling/v1"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/grants"
)

// confine sets what holds a guest in, whatever it asks for: whence its images come, how much of the laptop's disk it may
// fill, which system calls it has, and as whom it runs. It comes after stateRequests.
func confine(spec *corev1.PodSpec, t *grants.Terms) {
	eachImage(spec, func(_ string, image *string, policy *corev1.PullPolicy) { *policy = t.Images.Pull(*image, *policy) })
	limitScratch(spec, t.Limit)
	if t.Level == v1alpha1.PodSecurityPrivileged {
		return
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.SecurityContext.SeccompProfile == nil {
		spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if t.UserNamespaces {
		spec.HostUsers = ptr.To(false) // root in the guest is nobody outside (KEP-127)
	}
}

// leastScratch is what a guest may write under a contract that grants no ephemeral-storage: logs and small files.
const leastScratch = 128 << 20

// limitScratch bounds what a guest writes to this laptop's disk: to what it requests, which the contract counts, and beside
// that one pod's part of what the contract grants. So guests that say nothing stay within the contract together. A request
// that is not there is said to be none, for the API server would take the limit for it.
func limitScratch(spec *corev1.PodSpec, limit corev1.ResourceList) {
	const name = corev1.ResourceEphemeralStorage
	granted, pods := limit[name], limit[corev1.ResourcePods]
	together := int64(len(spec.Containers)) // that run at the same time
	for i := range spec.InitContainers {
		if p := spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			together++
		}
	}
	// The kubelet holds each container to its limit, and the pod with its volumes to their sum.
	part := int64(leastScratch)
	if granted.Sign() > 0 {
		part = granted.Value() / max(pods.Value(), 1)
	}
	part /= max(together, 1)
	eachContainer(spec, func(c *corev1.Container) {
		own, spoken := c.Resources.Requests[name]
		if !spoken {
			request(&c.Resources, name, *resource.NewQuantity(0, resource.BinarySI))
		}
		most := own.DeepCopy()
		most.Add(*resource.NewQuantity(part, resource.BinarySI))
		if asked, ok := c.Resources.Limits[name]; ok && asked.Cmp(most) < 0 {
			return
		}
		if c.Resources.Limits == nil {
			c.Resources.Limits = corev1.ResourceList{}
		}
		c.Resources.Limits[name] = most
	})
}

// Priority: below every pod of the owner's that says nothing, so they preempt guests and guests nobody, and guests go
// first when memory, disk or process numbers run out.
func Priority() *schedulingv1ac.PriorityClassApplyConfiguration {
	return schedulingv1ac.PriorityClass(v1alpha1.GuestPriorityClass).WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}).
		WithValue(-1000).WithPreemptionPolicy(corev1.PreemptNever).WithGlobalDefault(false).
		WithDescription("Pods of other clusters.")
}
