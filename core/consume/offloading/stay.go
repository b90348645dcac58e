package offloading

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// Taints keep pods off virtual nodes unless they tolerate everything, as agents of a node often do. What is here keeps those
// at home too: they get a node affinity, by which the scheduler and the DaemonSet controller choose, and a pod that is bound to
// a virtual node all the same is refused.

// places are the variables that tell, of the pod spec at the CEL expression spec, which nodes it may run on as it is.
func places(spec string) []admissionv1.Variable {
	of := func(expression string) string { return strings.ReplaceAll(expression, "SPEC", spec) }
	return []admissionv1.Variable{
		{Name: "own", Expression: of(`has(SPEC.tolerations) ? SPEC.tolerations.filter(t, has(t.key) && t.key == "kith.dev/peer") : []`)},
		{Name: "wide", Expression: of(`has(SPEC.tolerations) && SPEC.tolerations.exists(t, !has(t.key) || t.key == "")`)},
		// Constraints that count nodes which are closed to the pod by a taint.
		{Name: "spread", Expression: of(`has(SPEC.topologySpreadConstraints) && SPEC.topologySpreadConstraints.exists(c,
  c.whenUnsatisfiable == "DoNotSchedule" && !(has(c.nodeTaintsPolicy) && c.nodeTaintsPolicy == "Honor"))`)},
		{Name: "terms", Expression: of(`has(SPEC.affinity) && has(SPEC.affinity.nodeAffinity) && has(SPEC.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution) ?
  SPEC.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms : []`)},
	}
}

// Requirements of a node selector term, in CEL: the fields of a NodeSelectorRequirement. A list that split() made is made anew: as it is, the API
// server breaks off with it (k8s.io/apiserver 0.36, conversion of native lists).
const (
	atHome  = `key: "kith.dev/virtual", operator: "DoesNotExist"`
	atPeers = `key: "kith.dev/peer", operator: "In", values: variables.reach.map(p, p)`
	beyond  = `key: "kith.dev/peer", operator: "NotIn", values: variables.avoided`
	// atLaptops are those that this cluster runs.
	atLaptops = `key: "` + v1alpha1.LabelTethered + `", operator: "In", values: ["true"]`
)

// require is the CEL expression of the patches that have a pod spec, at the JSON pointer path and the CEL expression spec, require
// one of the alternatives of its nodes, beside all that it requires already: terms are alternatives, so each is there with each.
func require(path, spec string, alternatives ...string) string {
	object := "Object" + strings.ReplaceAll(path, "/", ".")
	term := object + ".affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	var alone, added []string
	for _, alternative := range alternatives {
		requirement := term + `.matchExpressions{` + alternative + `}`
		alone = append(alone, term+`{matchExpressions: [`+requirement+`]}`)
		// Each requirement is made anew: a list has elements of one type.
		added = append(added, `variables.terms.map(t, `+term+`{
      matchExpressions: (has(t.matchExpressions) ? t.matchExpressions.map(e,
        `+term+`.matchExpressions{key: e.key, operator: e.operator, values: has(e.values) ? e.values : []}) : []) + [`+requirement+`],
      matchFields: has(t.matchFields) ? t.matchFields : []})`)
	}
	return strings.NewReplacer("PATH", path, "SPEC", spec, "OBJECT", object).Replace(`((has(SPEC.affinity) ? [] : [JSONPatch{op: "add", path: "PATH/affinity", value: OBJECT.affinity{}}])
  + (has(SPEC.affinity) && has(SPEC.affinity.nodeAffinity) ? [] : [JSONPatch{op: "add", path: "PATH/affinity/nodeAffinity", value: OBJECT.affinity.nodeAffinity{}}])
  + [JSONPatch{op: "add", path: "PATH/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
      value: OBJECT.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution{nodeSelectorTerms: size(variables.terms) == 0 ? [`) +
		strings.Join(alone, ", ") + `] : ` + strings.Join(added, " + ") + `}}])`
}

// homePolicy keeps pods at home that would tolerate virtual nodes though their namespace is not offloaded, and has virtual nodes
// not count where such pods are to be spread. Pods that ask for a virtual node wait, until their namespace is offloaded.
func homePolicy() *admissionv1.MutatingAdmissionPolicy {
	p := mutating(HomePolicyName, metav1.LabelSelectorOpNotIn, core("pods"), admissionv1.Create)
	p.Spec.MatchConditions = []admissionv1.MatchCondition{
		{Name: "not-of-a-daemonset", Expression: ofNoDaemonSet},
		{Name: "not-bound-already", Expression: notBound},
		{Name: "not-asking-for-a-peer", Expression: `!has(object.spec.nodeSelector) || !("` + LabelVirtual + `" in object.spec.nodeSelector)`},
	}
	p.Spec.Variables = places("object.spec")
	p.Spec.Mutations = []admissionv1.Mutation{
		patch(`variables.wide || variables.spread || size(variables.own) > 0 ? ` + require("/spec", "object.spec", atHome) + ` : []`),
	}
	return p
}

// daemonSetPolicy keeps DaemonSets off virtual nodes: their controller decides by the template, so that is where it must stand. One of an
// offloaded namespace whose template tolerates kith.dev/tethered runs on the laptops that this cluster runs, too.
func daemonSetPolicy() *admissionv1.MutatingAdmissionPolicy {
	rule := admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"}}
	p := mutating(DaemonSetPolicyName, "", rule, admissionv1.Create, admissionv1.Update)
	const spec = "object.spec.template.spec"
	p.Spec.Variables = append(places(spec),
		admissionv1.Variable{Name: "tethered", Expression: `has(namespaceObject.metadata.labels) && "` + v1alpha1.LabelOffload + `" in namespaceObject.metadata.labels &&
  namespaceObject.metadata.labels["` + v1alpha1.LabelOffload + `"] == "true" &&
  has(` + spec + `.tolerations) && ` + spec + `.tolerations.exists(t, has(t.key) && t.key == "` + v1alpha1.LabelTethered + `")`},
		admissionv1.Variable{Name: "stays", Expression: `size(variables.terms) > 0 && variables.terms.all(t,
  has(t.matchExpressions) && t.matchExpressions.exists(e, e.key == "` + LabelVirtual + `" && e.operator == "DoesNotExist" || e.key == "` + v1alpha1.LabelTethered + `"))`})
	p.Spec.Mutations = []admissionv1.Mutation{
		patch(`variables.stays || !(variables.tethered || variables.wide || size(variables.own) > 0) ? [] :
  variables.tethered ? ` + require("/spec/template/spec", spec, atHome, atLaptops) + ` : ` + require("/spec/template/spec", spec, atHome)),
		patch(`!variables.tethered || variables.wide || size(variables.own) > 0 ? [] :
  [JSONPatch{op: "add", path: "/spec/template/spec/tolerations/-", value: Object.spec.template.spec.tolerations{key: "` + v1alpha1.TaintPeer + `", operator: "Exists"}}]`),
	}
	return p
}

// onto is the node that a Pod is made on, or that a Binding of one is for.
const onto = `(has(dyn(object).target) ? dyn(object).target.name : has(dyn(object).spec.nodeName) ? dyn(object).spec.nodeName : "")`

// ontoOf reports whether that is the node of a peer, or of a provider behind it (v1alpha1.AtPeer).
func ontoOf(peer string) string {
	const node = `"` + v1alpha1.VirtualNodePrefix + `" + `
	return onto + ` == ` + node + peer + ` || ` + onto + `.startsWith(` + node + peer + ` + ".")`
}

// refusal makes the ValidatingAdmissionPolicy (KEP-3488) that refuses pods of namespaces that are not offloaded on a virtual node,
// whether they are made there or bound later. Its parameter is each Peer in turn: the name of a real node may begin like theirs.
func refusal() *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			ParamKind:        &admissionv1.ParamKind{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Peer"},
			MatchConstraints: matching(metav1.LabelSelectorOpNotIn, core("pods", "pods/binding", "bindings"), admissionv1.Create),
			MatchConditions:  []admissionv1.MatchCondition{{Name: "like-a-virtual-node", Expression: onto + `.startsWith("` + v1alpha1.VirtualNodePrefix + `")`}},
			Validations: []admissionv1.Validation{{
				Expression: `!(` + ontoOf(`params.metadata.name`) + `)`,
				MessageExpression: `object.metadata.name.startsWith("` + debuggerPrefix + `" + ` + onto + ` + "-") ? "` + strings.ReplaceAll(noNodeDebug, "NODE", `" + `+onto+` + "`) +
					`" : "` + strings.ReplaceAll(notOffloaded, "NAMESPACE", `" + request.namespace + "`) + `"`,
				Reason: new(metav1.StatusReasonForbidden),
			}},
			// That a definition of Kith's is gone must not stop pods; and the virtual node sends none of these away by itself.
			FailurePolicy: new(admissionv1.Ignore),
		},
	}
}

func refusalBinding() *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        PolicyName,
			ParamRef:          &admissionv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admissionv1.AllowAction)},
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}

// budgetRefusal makes the ValidatingAdmissionPolicy that refuses pods on the nodes of peers that the budget of their namespace closes, whether they are
// made there or bound later: those that were made before it was spent, and wait, tolerate them.
func budgetRefusal() *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: BudgetPolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: matching(metav1.LabelSelectorOpIn, core("pods", "pods/binding", "bindings"), admissionv1.Create),
			MatchConditions:  []admissionv1.MatchCondition{{Name: "like-a-virtual-node", Expression: onto + `.startsWith("` + v1alpha1.VirtualNodePrefix + `")`}},
			Variables: []admissionv1.Variable{
				{Name: "closed", Expression: fmt.Sprintf(annotation, v1alpha1.AnnotationBudgetClosed, v1alpha1.AnnotationBudgetClosed)},
				{Name: "here", Expression: `variables.closed.split(",").filter(c, ` + ontoOf(`c.split("/")[0]`) + `)`},
			},
			Validations: []admissionv1.Validation{{
				Expression: `size(variables.here) == 0`,
				MessageExpression: `"the budget of namespace " + request.namespace + (variables.here[0].endsWith("/` + string(v1alpha1.ClosedOtherCurrency) + `") ? " is in another currency than the prices of the peer behind node " : ` +
					`" is spent, so no more of its pods go to node ") + ` + onto + ` + "; kith offload says how it stands"`,
				Reason: new(metav1.StatusReasonForbidden),
			}},
			FailurePolicy: new(admissionv1.Ignore), // the virtual node refuses it too
		},
	}
}

func budgetRefusalBinding() *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: BudgetPolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: BudgetPolicyName, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
}
