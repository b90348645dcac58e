package virtualnode

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"kith.dev/core/api/v1alpha1"
)

// offloadedPod is what is asked of the peer for a pod at home.
func offloadedPod(home *corev1.Pod, twin string) *v1alpha1.OffloadedPod {
	return &v1alpha1.OffloadedPod{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "OffloadedPod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: twin, Name: home.Name,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
			// Hosting makes no Pod without it, and would have to write it first.
			Finalizers: []string{v1alpha1.FinalizerOffloadedPod},
		},
		Spec: v1alpha1.OffloadedPodSpec{
			HomeNamespace: home.Namespace,
			HomeUID:       home.UID,
			Template:      template(home),
		},
	}
}

// adapted is the home pod with the spec that is meant for abroad.
func (n *Node) adapted(t *twin, home *corev1.Pod) *corev1.Pod {
	if home == nil || n.cfg.Companions == nil {
		return home
	}
	pod := *home
	pod.Spec = *home.Spec.DeepCopy()
	n.cfg.Companions.Adapt(home, t.name, &pod.Spec)
	return &pod
}

// template is the pod copied whole, less what means something at home only. This is the whole list.
func template(home *corev1.Pod) corev1.PodTemplateSpec {
	spec := home.Spec.DeepCopy()
	annotations := map[string]string{}
	for k, v := range home.Annotations {
		if v1alpha1.AnnotationTravels(k) || v1alpha1.AnnotationOfPower(k) { // of power: as far as the peer allows
			annotations[k] = v
		}
	}

	// Where it runs: decided at home as far as nodes of home go; the peer's scheduler chooses among its own.
	spec.NodeName = ""
	spec.NodeSelector = only(spec.NodeSelector, corev1.LabelArchStable, corev1.LabelOSStable)
	spec.Affinity = nil
	spec.TopologySpreadConstraints = nil
	spec.Tolerations = nil
	spec.SchedulerName = ""
	spec.SchedulingGates = nil
	// Classes of the home cluster, and what admission there wrote for them. The priority itself is told: it orders the pods of this home there.
	spec.PriorityClassName = ""
	if ptr.Deref(spec.Priority, 0) == 0 {
		spec.Priority = nil
	}
	if ptr.Deref(spec.PreemptionPolicy, "") != corev1.PreemptNever {
		spec.PreemptionPolicy = nil
	}
	spec.Overhead = nil
	// Conditions that only controllers at home fulfil; status adds them to the guest's readiness.
	spec.ReadinessGates = nil
	// A service account of the home cluster has no namesake abroad, and a token issued there opens nothing here.
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
	spec.AutomountServiceAccountToken = new(bool)
	dropInjectedToken(spec)
	nameEphemeralClaims(home.Name, spec)
	// Those that ended are not started again in a pod that is made anew.
	spec.EphemeralContainers = slices.DeleteFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
		return slices.ContainsFunc(home.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.Name == c.Name && s.State.Terminated != nil
		})
	})

	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: only(home.Labels), Annotations: annotations},
		Spec:       *spec,
	}
}

// nameEphemeralClaims: the claim of a generic ephemeral volume (KEP-1698) was made at home, and a peer has one of its name.
func nameEphemeralClaims(pod string, spec *corev1.PodSpec) {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Ephemeral != nil {
			v.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod + "-" + v.Name}}
		}
	}
}

// only copies the wanted entries, or all when none are named.
func only(m map[string]string, wanted ...string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if len(wanted) == 0 || slices.Contains(wanted, k) {
			out[k] = v
		}
	}
	return out
}

// injectedTokenPrefix names the volume that the ServiceAccount admission plugin adds to every pod.
const injectedTokenPrefix = "kube-api-access-"

func dropInjectedToken(spec *corev1.PodSpec) {
	injected := map[string]bool{}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		injected[v.Name] = strings.HasPrefix(v.Name, injectedTokenPrefix) && v.Projected != nil && !replaced(v.Projected)
		return injected[v.Name]
	})
	drop := func(mounts *[]corev1.VolumeMount) {
		*mounts = slices.DeleteFunc(*mounts, func(m corev1.VolumeMount) bool { return injected[m.Name] })
	}
	for i := range spec.InitContainers {
		drop(&spec.InitContainers[i].VolumeMounts)
	}
	for i := range spec.Containers {
		drop(&spec.Containers[i].VolumeMounts)
	}
	for i := range spec.EphemeralContainers {
		drop(&spec.EphemeralContainers[i].VolumeMounts)
	}
}

func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// replaced: the token was replaced by something that is valid abroad.
func replaced(p *corev1.ProjectedVolumeSource) bool {
	return len(p.Sources) > 0 && !slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}
