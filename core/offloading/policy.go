package offloading

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// PolicyName is the name of the MutatingAdmissionPolicy and of its binding.
const PolicyName = "offloading.kith.dev"

// LabelVirtual is on every virtual node; pods that must run abroad select it.
const LabelVirtual = "kith.dev/virtual"

// addTolerations adds one toleration for all peers, or one for each peer that the namespace names.
const addTolerations = `(has(object.spec.tolerations) ? [] : [JSONPatch{op: "add", path: "/spec/tolerations", value: []}])
  + (size(variables.peers) == 0
    ? [JSONPatch{op: "add", path: "/spec/tolerations/-",
        value: Object.spec.tolerations{key: "kith.dev/peer", operator: "Exists", effect: "NoSchedule"}}]
    : variables.peers.map(p, JSONPatch{op: "add", path: "/spec/tolerations/-",
        value: Object.spec.tolerations{key: "kith.dev/peer", operator: "Equal", value: p, effect: "NoSchedule"}}))`

// "~1" is "/" in a JSON pointer (RFC 6901).
const selectVirtual = `variables.strategy != "Remote" ? [] :
  (has(object.spec.nodeSelector) ? [] : [JSONPatch{op: "add", path: "/spec/nodeSelector", value: {}}])
  + [JSONPatch{op: "add", path: "/spec/nodeSelector/kith.dev~1virtual", value: "true"}]`

// boundToHome: volumes and devices that a claim stands for are at home, and so the pod runs there. With the strategy
// Remote it may not: it goes to a peer, which says in the pod's events why it cannot run.
const boundToHome = `((has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.persistentVolumeClaim) || has(v.ephemeral))) ||
  (has(object.spec.resourceClaims) && size(object.spec.resourceClaims) > 0))`

// annotation is the value of an annotation of the namespace, "" without it.
const annotation = `has(namespaceObject.metadata.annotations) && %q in namespaceObject.metadata.annotations ? namespaceObject.metadata.annotations[%q] : ""`

// Objects are the admission policy and what puts it into force.
func Objects() []client.Object { return []client.Object{Policy(), Binding()} }

// Policy makes the MutatingAdmissionPolicy (KEP-3962) that lets pods of offloaded namespaces tolerate virtual
// nodes. What a NamespaceOffloading says it reads in annotations of the namespace. A parameter (paramKind) would be simpler, and
// fails: an API server that starts looks for the kinds of parameters before it serves custom resources, and then again after 30 s;
// every pod that was made meanwhile would stay at home for good.
func Policy() *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelOffload: "true"}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "not-of-a-daemonset", Expression: `!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, o.kind == "DaemonSet")`},
				{Name: "not-bound-already", Expression: `!has(object.spec.nodeName) || object.spec.nodeName == ""`},
				{Name: "not-tolerating-already", Expression: `!has(object.spec.tolerations) || !object.spec.tolerations.exists(t, has(t.key) && t.key == "kith.dev/peer")`},
			},
			Variables: []admissionv1.Variable{
				{Name: "strategy", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationStrategy, v1alpha1.AnnotationStrategy)},
				{Name: "names", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationPeers, v1alpha1.AnnotationPeers)},
				{Name: "peers", Expression: `variables.names == "" ? [] : variables.names.split(",")`},
				{Name: "off", Expression: `variables.strategy in ["", "Local"] || (variables.strategy != "Remote" && ` + boundToHome + `)`},
			},
			Mutations: []admissionv1.Mutation{
				{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: `variables.off ? [] : (` + addTolerations + `)`}},
				{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: `variables.off ? [] : (` + selectVirtual + `)`}},
			},
			FailurePolicy:      new(admissionv1.Ignore),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
}

// Binding puts Policy into force.
func Binding() *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: PolicyName},
	}
}
