package offloading

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// Names of the admission policies and of their bindings.
const (
	// PolicyName is that of the MutatingAdmissionPolicy of offloaded namespaces, and of the ValidatingAdmissionPolicy of all others.
	PolicyName = "offloading.kith.dev"
	// HomePolicyName is that of the MutatingAdmissionPolicy of pods whose namespace is not offloaded.
	HomePolicyName = "home.offloading.kith.dev"
	// VolumesPolicyName is that of the MutatingAdmissionPolicy, and of the ValidatingAdmissionPolicy, of claims in namespaces whose volumes may be
	// at peers.
	VolumesPolicyName = "volumes.offloading.kith.dev"
	// DaemonSetPolicyName is that of the MutatingAdmissionPolicy of DaemonSets.
	DaemonSetPolicyName = "daemonsets.offloading.kith.dev"
	// BudgetPolicyName is that of the ValidatingAdmissionPolicy of pods that a budget keeps from a peer.
	BudgetPolicyName = "budgets.offloading.kith.dev"
)

// LabelVirtual is on every virtual node; pods that must run abroad select it.
const LabelVirtual = "kith.dev/virtual"

// addTolerations adds one toleration for all peers, or one for each peer that the namespace names. Without an effect it covers
// both taints of a virtual node.
const addTolerations = `((has(object.spec.tolerations) ? [] : [JSONPatch{op: "add", path: "/spec/tolerations", value: []}])
  + (variables.narrowed ? variables.open.map(p, JSONPatch{op: "add", path: "/spec/tolerations/-",
        value: Object.spec.tolerations{key: "kith.dev/peer", operator: "Equal", value: p}}) : size(variables.peers) == 0
    ? [JSONPatch{op: "add", path: "/spec/tolerations/-",
        value: Object.spec.tolerations{key: "kith.dev/peer", operator: "Exists"}}]
    : variables.peers.map(p, JSONPatch{op: "add", path: "/spec/tolerations/-",
        value: Object.spec.tolerations{key: "kith.dev/peer", operator: "Equal", value: p}})))`

// tolerateNoNetwork: pods that need no network, as the namespace says or their own node selector, may go where there is none.
const tolerateNoNetwork = `variables.network != "none" &&
    !(has(object.spec.nodeSelector) && "kith.dev/network" in object.spec.nodeSelector && object.spec.nodeSelector["kith.dev/network"] == "none") ? [] :
  (has(object.spec.tolerations) ? [] : [JSONPatch{op: "add", path: "/spec/tolerations", value: []}])
  + [JSONPatch{op: "add", path: "/spec/tolerations/-",
      value: Object.spec.tolerations{key: "kith.dev/network", operator: "Equal", value: "none", effect: "NoSchedule"}}]`

// completeTolerations: one of the pod's own that covers NoSchedule only, as all did once, is for both taints.
const completeTolerations = `(variables.own.exists(t, !has(t.effect) || t.effect == "NoExecute") ? [] :
  variables.own.map(t, JSONPatch{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{
    key: "kith.dev/peer", operator: has(t.operator) ? t.operator : "Equal", value: has(t.value) ? t.value : "", effect: "NoExecute"}}))`

// "~1" is "/" in a JSON pointer (RFC 6901).
const selectVirtual = `variables.strategy != "Remote" ? [] :
  (has(object.spec.nodeSelector) ? [] : [JSONPatch{op: "add", path: "/spec/nodeSelector", value: {}}])
  + [JSONPatch{op: "add", path: "/spec/nodeSelector/kith.dev~1virtual", value: "true"}]`

// boundToHome: volumes and devices that a claim stands for are at home, and so the pod runs there. With the strategy
// Remote it may not: it goes to a peer, which says in the pod's events why it cannot run. Where volumes may be anywhere, the volumes themselves
// say where a pod may run.
const boundToHome = `((variables.volumes == "" && has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.persistentVolumeClaim) || has(v.ephemeral))) ||
  (has(object.spec.resourceClaims) && size(object.spec.resourceClaims) > 0))`

// avoided are the peers that refuse the pods of this one's controller.
const avoided = `variables.refused == "" || !has(object.metadata.ownerReferences) ? [] :
  variables.refused.split(",").filter(n, n.split("/").size() == 3 &&
    object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && n.startsWith(o.uid + "/"))).map(n, n.split("/")[1])`

// spreadOver has pods that are alike, by their labels, spread over zones, of which home and each peer is one. Labels that tell one of them from the
// others are left out.
const (
	alike = `!has(object.metadata.labels) ? [] : object.metadata.labels.filter(k, !(k in
  ["statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"]))`
	// By steps: a list of objects as one value is what the API server breaks off with (k8s.io/apiserver 0.36, conversion of lists).
	spreadOver = `([JSONPatch{op: "add", path: "/spec/topologySpreadConstraints", value: []},
    JSONPatch{op: "add", path: "/spec/topologySpreadConstraints/-", value: Object.spec.topologySpreadConstraints{
      maxSkew: 1, topologyKey: "topology.kubernetes.io/zone", whenUnsatisfiable: "ScheduleAnyway"}},
    JSONPatch{op: "add", path: "/spec/topologySpreadConstraints/0/labelSelector", value: {}},
    JSONPatch{op: "add", path: "/spec/topologySpreadConstraints/0/labelSelector/matchLabels", value: {}}]
  + variables.alike.map(k, JSONPatch{op: "add",
    path: "/spec/topologySpreadConstraints/0/labelSelector/matchLabels/" + jsonpatch.escapeKey(k), value: object.metadata.labels[k]}))`
)

// waitAsleep has a pod wait at a node that is not ready however long that takes: a peer whose laptop sleeps may have had no time to say so. What the pod
// itself says of such nodes stays; 300 s is what the API server gives those that say nothing (DefaultTolerationSeconds), and comes before this. Of
// several tolerations of a taint the first one counts for evictions.
const waitAsleep = `variables.stays || (has(object.spec.tolerations) && object.spec.tolerations.exists(t, (!has(t.effect) || t.effect == "NoExecute") &&
  (!has(t.key) || t.key == "node.kubernetes.io/not-ready") && !(has(t.tolerationSeconds) && t.tolerationSeconds == 300))) ? [] :
  (has(object.spec.tolerations) ? [] : [JSONPatch{op: "add", path: "/spec/tolerations", value: []}])
  + [JSONPatch{op: "add", path: "/spec/tolerations/0",
      value: Object.spec.tolerations{key: "node.kubernetes.io/not-ready", operator: "Exists", effect: "NoExecute"}}]`

// markNarrowed: what a pod tolerates is what a budget left open; markFenced: so are the nodes that it requires.
const (
	annotate     = `(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}])`
	markNarrowed = annotate + ` + [JSONPatch{op: "add", path: "/metadata/annotations/kith.dev~1budget-narrowed", value: "true"}]`
	markFenced   = annotate + ` + [JSONPatch{op: "add", path: "/metadata/annotations/kith.dev~1budget-fenced", value: variables.opened}]`
)

const (
	// What a pod requires of nodes stays, so it is for those only that are made again when they wait: see outgrown.
	madeAgain = `has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o,
  has(o.controller) && o.controller && o.kind in ["ReplicaSet", "StatefulSet", "ReplicationController"])`
	// Pods that a taint does not keep from the peers that a budget closes: the scheduler would choose their nodes again and again.
	fenced = `variables.narrowed && (` + madeAgain + `) && (variables.wide || variables.spread ||
  variables.own.exists(t, has(t.operator) && t.operator == "Exists" || has(t.value) && variables.closed.exists(c, c.startsWith(t.value + "/"))))`
	ofNoDaemonSet = `!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, o.kind == "DaemonSet")`
	notBound      = `(!has(object.spec.nodeName) || object.spec.nodeName == "")`
)

// annotation is the value of an annotation of the namespace, "" without it.
const annotation = `has(namespaceObject.metadata.annotations) && %q in namespaceObject.metadata.annotations ? namespaceObject.metadata.annotations[%q] : ""`

// Objects are the admission policies and what puts them into force.
func Objects() []client.Object {
	return []client.Object{
		leavePolicy(), mutatingBinding(PolicyName),
		homePolicy(), mutatingBinding(HomePolicyName),
		daemonSetPolicy(), mutatingBinding(DaemonSetPolicyName),
		volumesPolicy(), mutatingBinding(VolumesPolicyName), volumesRefusal(), volumesRefusalBinding(),
		refusal(), refusalBinding(), budgetRefusal(), budgetRefusalBinding(),
	}
}

// leavePolicy makes the MutatingAdmissionPolicy (KEP-3962) that lets pods of offloaded namespaces tolerate virtual
// nodes. What a NamespaceOffloading says it reads in annotations of the namespace. A parameter (paramKind) would be simpler, and
// fails: an API server that starts looks for the kinds of parameters before it serves custom resources, and then again after 30 s;
// every pod that was made meanwhile would stay at home for good.
func leavePolicy() *admissionv1.MutatingAdmissionPolicy {
	p := mutating(PolicyName, metav1.LabelSelectorOpIn, core("pods"), admissionv1.Create)
	p.Spec.MatchConditions = []admissionv1.MatchCondition{
		{Name: "not-of-a-daemonset", Expression: ofNoDaemonSet},
		{Name: "not-bound-at-home", Expression: notBound + ` || object.spec.nodeName.startsWith("` + v1alpha1.VirtualNodePrefix + `")`},
	}
	p.Spec.Variables = append([]admissionv1.Variable{
		{Name: "strategy", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationStrategy, v1alpha1.AnnotationStrategy)},
		{Name: "names", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationPeers, v1alpha1.AnnotationPeers)},
		{Name: "peers", Expression: `variables.names == "" ? [] : variables.names.split(",")`},
		{Name: "narrowed", Expression: fmt.Sprintf(`has(namespaceObject.metadata.annotations) && %q in namespaceObject.metadata.annotations`, v1alpha1.AnnotationBudgetOpen)},
		{Name: "opened", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationBudgetOpen, v1alpha1.AnnotationBudgetOpen)},
		{Name: "open", Expression: `variables.opened == "" ? [] : variables.opened.split(",")`},
		{Name: "closed", Expression: fmt.Sprintf(`(`+annotation+`).split(",")`, v1alpha1.AnnotationBudgetClosed, v1alpha1.AnnotationBudgetClosed)},
		{Name: "refused", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationRefused, v1alpha1.AnnotationRefused)},
		{Name: "avoided", Expression: avoided},
		{Name: "local", Expression: `variables.strategy == "Local"`},
		{Name: "volumes", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationVolumes, v1alpha1.AnnotationVolumes)},
		{Name: "network", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationNetwork, v1alpha1.AnnotationNetwork)},
		{Name: "evenly", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationSpread, v1alpha1.AnnotationSpread)},
		{Name: "asleep", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationWhenAsleep, v1alpha1.AnnotationWhenAsleep)},
		{Name: "alike", Expression: alike},
		{Name: "claims", Expression: `variables.strategy != "Remote" && ` + boundToHome},
	}, places("object.spec")...)
	p.Spec.Variables = append(p.Spec.Variables,
		admissionv1.Variable{Name: "stays", Expression: `variables.local || (variables.claims && size(variables.own) == 0)`},
		admissionv1.Variable{Name: "fenced", Expression: `!variables.stays && ` + notBound + ` && ` + fenced},
		admissionv1.Variable{Name: "reach", Expression: `variables.fenced ? variables.open : variables.peers`})
	// Each sees what those before it made: the tolerations come last.
	p.Spec.Mutations = []admissionv1.Mutation{
		known(`variables.local || variables.claims || size(variables.own) > 0 ? [] : (` + selectVirtual + `)`),
		known(`!variables.fenced ? [] : (` + markFenced + `)`),
		// Whoever tolerates everything would go to peers that the namespace is not for; and places that are closed to a pod
		// must not count among those that it is to be spread over.
		known(`!` + notBound + ` || !(variables.wide || variables.spread || variables.fenced) ? [] :
  variables.stays || (variables.fenced && size(variables.open) == 0) ? ` + require("/spec", "object.spec", atHome) + ` :
  size(variables.reach) == 0 ? [] : ` + require("/spec", "object.spec", atHome, atPeers)),
		known(`!` + notBound + ` || size(variables.avoided) == 0 ? [] : ` + require("/spec", "object.spec", beyond)),
		known(`variables.evenly != "true" || variables.local || variables.claims || !` + notBound + ` || size(variables.alike) == 0 ||
  (has(object.spec.topologySpreadConstraints) && size(object.spec.topologySpreadConstraints) > 0) ? [] : ` + spreadOver),
		// Once the budget is renewed it gets the tolerations that it lacks.
		known(`!variables.narrowed || size(variables.open) == 0 || variables.local || variables.claims || size(variables.own) > 0 ? [] : ` + markNarrowed),
		known(`variables.asleep != "Wait" ? [] : (` + waitAsleep + `)`),
		// One that is bound there already is to hear why it cannot run; without them it would be evicted without a word.
		known(`variables.local ? [] : ` + tolerateNoNetwork),
		known(`variables.local ? [] : size(variables.own) > 0 ? ` + completeTolerations + ` : variables.claims && ` + notBound + ` ? [] : ` + addTolerations),
	}
	return p
}

// known is a mutation for namespaces of which it is known what they are offloaded for: a label that somebody has just put there is
// followed by the annotations.
func known(expression string) admissionv1.Mutation {
	return patch(`variables.strategy == "" ? [] : (` + expression + `)`)
}

// mutating makes a policy for namespaces whose offload label is, or is not, "true"; with no operator for all.
func mutating(
	name string, labelled metav1.LabelSelectorOperator, rule admissionv1.Rule, operations ...admissionv1.OperationType,
) *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   matching(labelled, rule, operations...),
			FailurePolicy:      new(admissionv1.Ignore),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
}

func matching(labelled metav1.LabelSelectorOperator, rule admissionv1.Rule, operations ...admissionv1.OperationType) *admissionv1.MatchResources {
	m := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
		{RuleWithOperations: admissionv1.RuleWithOperations{Operations: operations, Rule: rule}},
	}}
	if labelled != "" {
		m.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: v1alpha1.LabelOffload, Operator: labelled, Values: []string{"true"}},
		}}
	}
	return m
}

// core is the rule for resources of the core group.
func core(resources ...string) admissionv1.Rule {
	return admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: resources}
}

func patch(expression string) admissionv1.Mutation {
	return admissionv1.Mutation{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: expression}}
}

func mutatingBinding(policy string) *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: policy, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy},
	}
}
