package guests

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1ac "k8s.io/client-go/applyconfigurations/scheduling/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/utils/ptr"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/grants"
	"kith.dev/core/trust/identity"
)

// annotationHomeKeys on a guest Pod names the label and annotation keys that came from home ("l:app",
// "a:note", comma-separated). Only those may be taken away again when they go at home: others on the Pod
// belong to this cluster's own controllers.
const annotationHomeKeys = "kith.dev/home-keys"

// podFor makes the Pod an OffloadedPod stands for: the template whole, then the changes listed below.
func podFor(opod *v1alpha1.OffloadedPod, t *grants.Terms) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        opod.Name,
			Namespace:   opod.Namespace,
			Labels:      homeLabels(opod.Spec.Template.Labels),
			Annotations: homeAnnotations(opod.Spec.Template.Annotations, t.Level),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "OffloadedPod",
				Name: opod.Name, UID: opod.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(false),
			}},
		},
		Spec: *opod.Spec.Template.Spec.DeepCopy(),
	}
	keys := homeKeys(pod)
	pod.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	pod.Labels[v1alpha1.LabelConsumer] = t.Consumer.Compact
	pod.Labels[v1alpha1.LabelConsumerName] = grants.LabelValue(t.Consumer.Name)
	pod.Labels[v1alpha1.LabelContract] = t.Contract
	pod.Annotations[v1alpha1.AnnotationHomePod] = opod.Spec.HomeNamespace + "/" + opod.Name
	if keys != "" {
		pod.Annotations[annotationHomeKeys] = keys
	}
	if p := ptr.Deref(pod.Spec.Priority, 0); p != 0 {
		pod.Annotations[v1alpha1.AnnotationHomePriority] = strconv.Itoa(int(p))
	}
	for _, change := range specChanges {
		change(&pod.Spec)
	}
	confine(&pod.Spec, t)
	if len(opod.Spec.Chain) > 0 {
		pod.Annotations[v1alpha1.AnnotationFor] = opod.Spec.Chain[0].Cluster + "/" + opod.Spec.Chain[0].Name
	}
	if by := via(opod); by != "" {
		pod.Annotations[v1alpha1.AnnotationVia] = by
	}
	if to := onTo(opod, t); len(to) > 0 {
		mayGoOn(&pod.Spec, to, opod.Spec.Via == "")
	} else {
		stayFenced(&pod.Spec)
	}
	return pod
}

// via is who is to run a guest, by the whole ID of the cluster; "" when that is not said, or said of nobody.
func via(opod *v1alpha1.OffloadedPod) string {
	id, err := identity.ParseID(opod.Spec.Via)
	if err != nil {
		return ""
	}
	return id.String()
}

// onTo are the providers to which a guest may go on: that which it says, or all; none when it says this cluster.
func onTo(opod *v1alpha1.OffloadedPod, t *grants.Terms) []grants.OnwardTo {
	switch {
	case !goesOn(opod, t):
		return nil
	case opod.Spec.Via == "":
		return t.MayGoOn()
	}
	part := t.PartOf(opod.Spec.Via)
	return slices.DeleteFunc(t.MayGoOn(), func(to grants.OnwardTo) bool { return part == nil || to.ID != part.ID })
}

// goesOn reports whether a guest may go on to a provider of this cluster: one that came by another cluster already may not, and what claims stand for
// is here.
func goesOn(opod *v1alpha1.OffloadedPod, t *grants.Terms) bool {
	return len(t.MayGoOn()) > 0 && len(opod.Spec.Chain) == 0 && claimOf(&opod.Spec.Template.Spec) == ""
}

// claimOf is the first volume of a pod that stands for a claim; "" without one.
func claimOf(spec *corev1.PodSpec) string {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return v.Name
		}
	}
	return ""
}

// leavesAfter is how long a guest that may go on stays bound to a node that is not ready: its home waits for it to be made elsewhere, and has waited
// for this cluster's word already.
const leavesAfter = 30

// mayGoOn keeps a guest to the nodes that stayFenced does, and those of providers to which it may go on. That it tolerates these is said by the admission
// policy of offloaded namespaces, as for all pods there. here: it may be at this cluster, too.
func mayGoOn(spec *corev1.PodSpec, to []grants.OnwardTo, here bool) {
	var peers []string
	for _, p := range to {
		peers = append(peers, p.Peer)
	}
	slices.Sort(peers)
	term := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	own := term(v1alpha1.LabelPeer, peers...) // and no node of somebody behind such a provider, which takes none that came by this cluster
	own.MatchExpressions = append(own.MatchExpressions, corev1.NodeSelectorRequirement{Key: v1alpha1.LabelBroker, Operator: corev1.NodeSelectorOpDoesNotExist})
	terms := []corev1.NodeSelectorTerm{own}
	if here {
		terms = slices.Insert(terms, 0, term(v1alpha1.LabelFenced, "true"))
	}
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: terms,
	}}}
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
			Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(leavesAfter)),
		})
	}
}

// stayFenced keeps a guest to nodes where a fence is alive, whoever binds it. It comes after what the consumer asked for.
func stayFenced(spec *corev1.PodSpec) {
	if spec.NodeSelector == nil {
		spec.NodeSelector = map[string]string{}
	}
	spec.NodeSelector[v1alpha1.LabelFenced] = "true"
}

// specChanges is everything that differs between a pod's spec at home and here.
var specChanges = []func(*corev1.PodSpec){
	forgetHomePlacement,
	forgetHomePriority,
	forgetHomeRuntime,
	forgetHomeIdentity,
	forgetHomeGates,
	nameSysctls,
	stateRequests,
}

// forgetHomePlacement: this cluster's scheduler places the pod, by what is true of its nodes. Of the node
// selector what describes the image (architecture, operating system) is kept.
func forgetHomePlacement(spec *corev1.PodSpec) {
	spec.NodeName = ""
	maps.DeleteFunc(spec.NodeSelector, func(key, _ string) bool {
		return key != corev1.LabelArchStable && key != corev1.LabelOSStable
	})
	spec.Affinity = nil
	spec.Tolerations = nil
	spec.TopologySpreadConstraints = nil
	spec.SchedulerName = ""
	spec.SchedulingGroup = nil
}

// forgetHomePriority: the classes of home are not known here. Without any a guest would get the owner's default class,
// and with it perhaps the right to push his pods out. All have the same one: a home that says of each of its pods that nothing matters more
// must not have others' evicted for them. Their order at home counts among themselves alone; see makeRoom.
func forgetHomePriority(spec *corev1.PodSpec) {
	spec.Priority = nil
	spec.PriorityClassName = v1alpha1.GuestPriorityClass
	spec.PreemptionPolicy = nil
}

func forgetHomeRuntime(spec *corev1.PodSpec) {
	spec.RuntimeClassName = nil
	spec.Overhead = nil
}

// forgetHomeGates: scheduling gates were lifted at home, readiness gates are conditions set at home on
// the home pod, and ephemeral containers cannot be part of a new pod.
func forgetHomeGates(spec *corev1.PodSpec) {
	spec.SchedulingGates = nil
	spec.ReadinessGates = nil
	spec.EphemeralContainers = nil
}

// nameSysctls: kubelets take the names with slashes too, pod security levels (pod-security-admission, policy.CheckSysctls) know those
// with dots alone.
func nameSysctls(spec *corev1.PodSpec) {
	if spec.SecurityContext == nil {
		return
	}
	for i := range spec.SecurityContext.Sysctls {
		s := &spec.SecurityContext.Sysctls[i]
		s.Name = sysctl.NormalizeName(s.Name)
	}
}

// tokenVolumePrefix starts the name of the volume the home API server added for its service account token.
const tokenVolumePrefix = "kube-api-access-"

// forgetHomeIdentity: the pod's account is known at home only, and it gets none of this cluster's tokens.
func forgetHomeIdentity(spec *corev1.PodSpec) {
	spec.ServiceAccountName = ""
	spec.DeprecatedServiceAccount = ""
	spec.AutomountServiceAccountToken = ptr.To(false)

	var gone []string
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		token := strings.HasPrefix(v.Name, tokenVolumePrefix) && v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
		if token {
			gone = append(gone, v.Name)
		}
		return token
	})
	if len(gone) == 0 {
		return
	}
	eachContainer(spec, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return slices.Contains(gone, m.Name)
		})
	})
}

// Links names the ConfigMap in a twin with the variables that tell of the namespace's services.
const Links = kinds.ServiceLinks

// linkServices has a guest told of the services of its namespace by that ConfigMap, which comes before all others as the kubelet's own
// variables do. Those have the addresses that the services have here.
func linkServices(spec *corev1.PodSpec) {
	if !ptr.Deref(spec.EnableServiceLinks, true) {
		return
	}
	spec.EnableServiceLinks = ptr.To(false)
	from := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: Links}, Optional: ptr.To(true)}}
	eachContainer(spec, func(c *corev1.Container) { c.EnvFrom = slices.Insert(c.EnvFrom, 0, from) })
}

func eachContainer(spec *corev1.PodSpec, do func(*corev1.Container)) {
	for i := range spec.InitContainers {
		do(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		do(&spec.Containers[i])
	}
}

// everyContainer is also for the ephemeral ones.
func everyContainer(spec *corev1.PodSpec, do func(*corev1.Container)) {
	eachContainer(spec, do)
	for i := range spec.EphemeralContainers {
		do((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// ownDomain says whether a label or annotation is Kith's: what it says is for each side to say.
func ownDomain(key string) bool {
	return strings.HasPrefix(key, "kith.dev/") || strings.Contains(key, ".kith.dev/")
}

func homeLabels(in map[string]string) map[string]string {
	out := make(map[string]string, len(in)+4)
	maps.Copy(out, in)
	maps.DeleteFunc(out, func(key, _ string) bool { return ownDomain(key) })
	return out
}

func homeAnnotations(in map[string]string, level v1alpha1.PodSecurityLevel) map[string]string {
	out := make(map[string]string, len(in)+2)
	for k, v := range in {
		if v1alpha1.AnnotationTravels(k) || v1alpha1.AnnotationOfPower(k) && level == v1alpha1.PodSecurityPrivileged {
			out[k] = v
		}
	}
	return out
}

func homeKeys(pod *corev1.Pod) string {
	var keys []string
	for k := range pod.Labels {
		keys = append(keys, "l:"+k)
	}
	for k := range pod.Annotations {
		keys = append(keys, "a:"+k)
	}
	slices.Sort(keys)
	return strings.Join(keys, ",")
}

// syncInPlace changes pod, which runs, towards want as far as Kubernetes allows for a running pod: labels,
// annotations, images, a shorter deadline. It says whether it changed anything, and names what cannot be.
func syncInPlace(pod, want *corev1.Pod) (changed bool, cannot []string) {
	var labels, annotations []string
	for key := range strings.SplitSeq(pod.Annotations[annotationHomeKeys], ",") {
		if k, ok := strings.CutPrefix(key, "l:"); ok {
			labels = append(labels, k)
		} else if k, ok := strings.CutPrefix(key, "a:"); ok {
			annotations = append(annotations, k)
		}
	}
	was := pod.ObjectMeta
	pod.Labels = replaced(was.Labels, labels, want.Labels)
	pod.Annotations = replaced(was.Annotations, append(annotations, annotationHomeKeys), want.Annotations)
	changed = !maps.Equal(was.Labels, pod.Labels) || !maps.Equal(was.Annotations, pod.Annotations)
	more, cannot := syncContainers(pod.Spec.InitContainers, want.Spec.InitContainers, "spec.initContainers")
	changed = changed || more
	more, also := syncContainers(pod.Spec.Containers, want.Spec.Containers, "spec.containers")
	changed, cannot = changed || more, append(cannot, also...)
	runs, is := pod.Spec.ActiveDeadlineSeconds, want.Spec.ActiveDeadlineSeconds
	switch {
	case ptr.Equal(runs, is):
	case is != nil && *is > 0 && (runs == nil || *is < *runs):
		pod.Spec.ActiveDeadlineSeconds, changed = ptr.To(*is), true
	default:
		cannot = append(cannot, "spec.activeDeadlineSeconds")
	}
	return changed, cannot
}

func syncContainers(has, wants []corev1.Container, field string) (changed bool, cannot []string) {
	for i := range wants {
		at := slices.IndexFunc(has, func(c corev1.Container) bool { return c.Name == wants[i].Name })
		switch {
		case at < 0:
			cannot = append(cannot, field+"["+wants[i].Name+"]")
		case has[at].Image == wants[i].Image:
		case wants[i].ImagePullPolicy == corev1.PullAlways && has[at].ImagePullPolicy != corev1.PullAlways:
			// A running pod keeps its pull policy, and under that one the new image would be taken as it is here.
			cannot = append(cannot, field+"["+wants[i].Name+"].image")
		default:
			has[at].Image, changed = wants[i].Image, true
		}
	}
	return changed, cannot
}

// replaced is in, with the entries of next in the place of those named.
func replaced(in map[string]string, names []string, next map[string]string) map[string]string {
	out := make(map[string]string, len(in)+len(next))
	maps.Copy(out, in)
	for _, name := range names {
		delete(out, name)
	}
	maps.Copy(out, next)
	return out
}

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
	everyContainer(spec, withoutRaw)
	letPing(spec.SecurityContext, t.UserNamespaces)
}

// netRaw makes packets by hand: any sender, any protocol, ARP. Runtimes give it to every container; the levels do not let one ask for it
// (policy.CheckCapabilitiesBaseline), but say nothing of one that has it unasked.
const netRaw corev1.Capability = "NET_RAW"

// withoutRaw drops it, beside what the container drops itself. What it asks for stays: that is for check to refuse.
func withoutRaw(c *corev1.Container) {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	if c.SecurityContext.Capabilities == nil {
		c.SecurityContext.Capabilities = &corev1.Capabilities{}
	}
	caps := c.SecurityContext.Capabilities
	if !slices.Contains(caps.Drop, netRaw) && !slices.Contains(caps.Drop, "ALL") {
		caps.Drop = append(caps.Drop, netRaw)
	}
}

// pingGroups are those whose members may ask for echoes without netRaw.
const pingGroups = "net.ipv4.ping_group_range"

// letPing lets every group of the pod, unless the pod says which. containerd does so too, but not where the pod has a user namespace
// (internal/cri/server/podsandbox of v2.3): its groups are 65 536 then, and the kernel takes none that it has not.
func letPing(security *corev1.PodSecurityContext, userNamespace bool) {
	if slices.ContainsFunc(security.Sysctls, func(s corev1.Sysctl) bool { return s.Name == pingGroups }) {
		return
	}
	all := "0 2147483647"
	if userNamespace {
		all = "0 65535"
	}
	security.Sysctls = append(security.Sysctls, corev1.Sysctl{Name: pingGroups, Value: all})
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
		WithValue(-1000).WithPreemptionPolicy(corev1.PreemptNever).
		WithDescription("Pods of other clusters.")
}
