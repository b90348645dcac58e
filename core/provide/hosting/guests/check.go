package guests

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
)

func newRules() (*rules, error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("pod security checks: %w", err)
	}
	return &rules{security: evaluator}, nil
}

// check says why pod may not run here at this level, or nil. The contract's amounts are the allocations's matter.
func (r *rules) check(pod *corev1.Pod, level v1alpha1.PodSecurityLevel) *grants.Refusal {
	if no := unsupported(&pod.Spec); no != nil {
		return no
	}
	if level == v1alpha1.PodSecurityPrivileged {
		return nil
	}
	if field := powerOverHost(&pod.Spec); field != "" {
		return grants.Refused(grants.ReasonPodSecurity, "%s is not allowed at this provider's pod security level %s", field, level)
	}
	if field := ownProfile(&pod.Spec); field != "" {
		return grants.Refused(grants.ReasonNotSupported, "%s: files with seccomp profiles of home are not available at a peer; RuntimeDefault is", field)
	}
	results := r.security.EvaluatePod(
		psa.LevelVersion{Level: psa.Level(level), Version: psa.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
	if sum := policy.AggregateCheckResults(results); !sum.Allowed {
		reason := grants.ReasonPodSecurity
		if slices.Equal(sum.ForbiddenReasons, []string{"forbidden sysctls"}) { // policy.CheckSysctls
			reason = grants.ReasonSysctl
		}
		return grants.Refused(reason, "this provider's pod security level is %s: %s", level, sum.ForbiddenDetail())
	}
	return nil
}

// unsupported names what a guest cannot have at any level, because what it refers to is not brought here.
func unsupported(spec *corev1.PodSpec) *grants.Refusal {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		field := fmt.Sprintf("spec.volumes[%d] (%s)", i, v.Name)
		if v.Ephemeral != nil { // homes name the claim instead, which they have asked for
			return grants.Refused(grants.ReasonNotSupported, "%s: a claim is not made of a pod's template at a peer", field)
		}
		if v.Projected == nil {
			continue
		}
		for j, source := range v.Projected.Sources {
			at := fmt.Sprintf("%s.projected.sources[%d]", field, j)
			switch {
			case source.ServiceAccountToken != nil:
				return grants.Refused(grants.ReasonNotSupported, "%s: a service account token of home is not available at a peer", at)
			case source.PodCertificate != nil, source.ClusterTrustBundle != nil:
				return grants.Refused(grants.ReasonNotSupported, "%s: certificates of the home cluster are not available at a peer", at)
			}
		}
	}
	if len(spec.ResourceClaims) > 0 {
		return grants.Refused(grants.ReasonNotSupported, "spec.resourceClaims[0] (%s): resource claims are not available at a peer", spec.ResourceClaims[0].Name)
	}
	return negative(spec)
}

// negative amounts would lower the sum under the contract while the API server still makes up its mind.
func negative(spec *corev1.PodSpec) (no *grants.Refusal) {
	check := func(field string, r *corev1.ResourceRequirements) {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for name, q := range list {
				if q.Sign() < 0 {
					no = grants.Refused(grants.ReasonInvalid, "%s: %s %s is negative", field, name, q.String())
				}
			}
		}
	}
	eachContainer(spec, func(c *corev1.Container) { check("spec.containers ("+c.Name+").resources", &c.Resources) })
	if spec.Resources != nil {
		check("spec.resources", spec.Resources)
	}
	return no
}

// powerOverHost names the first field that reaches out of the container: into the host, or, by volumes
// that the host itself mounts, into the network the host is in, around the fence.
func powerOverHost(spec *corev1.PodSpec) string {
	switch {
	case spec.HostNetwork:
		return "spec.hostNetwork"
	case spec.HostPID:
		return "spec.hostPID"
	case spec.HostIPC:
		return "spec.hostIPC"
	}
	for i := range spec.Volumes {
		if s := spec.Volumes[i].VolumeSource; !contained(&s) {
			return fmt.Sprintf("spec.volumes[%d] (%s): this kind of volume", i, spec.Volumes[i].Name)
		}
	}
	field := ""
	everyContainer(spec, func(c *corev1.Container) {
		if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
			field = fmt.Sprintf("spec.containers (%s).securityContext.privileged", c.Name)
		}
		// In a user namespace the standards allow it; what /proc tells and takes is still the laptop's own.
		if s := c.SecurityContext; s != nil && s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount {
			field = fmt.Sprintf("spec.containers (%s).securityContext.procMount", c.Name)
		}
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				field = fmt.Sprintf("spec.containers (%s).ports.hostPort %d", c.Name, p.HostPort)
			}
		}
	})
	return field
}

// ownProfile names the first seccomp profile out of a file: the files are the owner's, and he has not made them for guests.
func ownProfile(spec *corev1.PodSpec) (field string) {
	local := func(p *corev1.SeccompProfile) bool { return p != nil && p.Type == corev1.SeccompProfileTypeLocalhost }
	if s := spec.SecurityContext; s != nil && local(s.SeccompProfile) {
		field = "spec.securityContext.seccompProfile"
	}
	everyContainer(spec, func(c *corev1.Container) {
		if s := c.SecurityContext; s != nil && local(s.SeccompProfile) {
			field = fmt.Sprintf("spec.containers (%s).securityContext.seccompProfile", c.Name)
		}
	})
	return field
}

// contained volumes live on this node's disk or come from the namespace's own objects or an image. With
// none set, the API server takes the volume for an emptyDir.
func contained(s *corev1.VolumeSource) bool {
	return s.EmptyDir != nil || s.ConfigMap != nil || s.Secret != nil || s.DownwardAPI != nil ||
		s.Projected != nil || s.Image != nil || s.PersistentVolumeClaim != nil || *s == (corev1.VolumeSource{})
}

// eachImage visits the images of containers and volumes.
func eachImage(spec *corev1.PodSpec, do func(field string, image *string, policy *corev1.PullPolicy)) {
	everyContainer(spec, func(c *corev1.Container) { do("image of container "+c.Name, &c.Image, &c.ImagePullPolicy) })
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			do("image of volume "+spec.Volumes[i].Name, &v.Reference, &v.PullPolicy)
		}
	}
}

// checkClaims refuses claims under a contract that grants no storage: there can be none of them.
func checkClaims(spec *corev1.PodSpec, limit corev1.ResourceList) *grants.Refusal {
	for name, granted := range limit {
		if _, storage := api.StorageClass(string(name)); storage && granted.Sign() > 0 {
			return nil
		}
	}
	for i := range spec.Volumes {
		if spec.Volumes[i].PersistentVolumeClaim != nil {
			return grants.Refused(grants.ReasonNotSupported, "spec.volumes[%d] (%s): the contract grants no storage for volumes of claims", i, spec.Volumes[i].Name)
		}
	}
	return nil
}

// checkImages says of the first image that may not be had why.
func checkImages(spec *corev1.PodSpec, rules grants.ImageRules) (no *grants.Refusal) {
	eachImage(spec, func(field string, image *string, _ *corev1.PullPolicy) {
		if no == nil {
			no = rules.Refuse(field, *image)
		}
	})
	return no
}

// keepImages has want keep the images of pod, which runs, where it may not have others.
func keepImages(want, pod *corev1.Pod, rules grants.ImageRules) (no *grants.Refusal) {
	has := map[string]string{}
	eachImage(&pod.Spec, func(field string, image *string, _ *corev1.PullPolicy) { has[field] = *image })
	eachImage(&want.Spec, func(field string, image *string, _ *corev1.PullPolicy) {
		if old, runs := has[field]; runs && old != *image {
			if why := rules.Refuse(field, *image); why != nil {
				no, *image = why, old
			}
		}
	})
	return no
}
