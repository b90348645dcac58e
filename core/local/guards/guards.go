// Package guards holds what is written with kubectl to what kith and the local API hold it to, where the schema of a kind cannot say it: a
// schema sees neither the namespace that an object is in, nor who this cluster is, and of a label selector not the bounds.
//
// The daemon puts its objects into the cluster and has them kept. What was stored before a rule came stays, and can be labelled and
// deleted: a rule judges what somebody says anew. docs/guards.md has all rules, those of the schemas too, each with the test that tries
// it both ways.
package guards

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// Names of the admission policies and of their bindings.
const (
	NamespacesPolicy = "namespaces.kith.dev"
	SelectorsPolicy  = "selectors.kith.dev"
	PeersPolicy      = "peers.kith.dev"
)

// Offloadable reports whether pods of a namespace may run at peers: it is neither Kubernetes' or Kith's own, nor one that Kith made for a
// peer's.
func Offloadable(ns *corev1.Namespace) bool {
	return !v1alpha1.SystemNamespace(ns.Name) && ns.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy
}

// Objects are the admission policies of the cluster with this ID, and what puts them into force.
func Objects(id string) (list []client.Object) {
	for _, p := range []*admissionv1.ValidatingAdmissionPolicy{namespaces(), selectors(), peers(id)} {
		list = append(list, p, &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: p.ObjectMeta,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: p.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		})
	}
	return list
}

// has is the CEL expression for "the object has this label with this value".
func has(object, label, value string) string {
	return strings.NewReplacer("OBJECT", object, "LABEL", label, "VALUE", value).Replace(
		`(has(OBJECT.metadata.labels) && "LABEL" in OBJECT.metadata.labels && OBJECT.metadata.labels["LABEL"] == "VALUE")`)
}

// namespaces says what Offloadable says, to who makes a NamespaceOffloading and to who labels the namespace.
func namespaces() *admissionv1.ValidatingAdmissionPolicy {
	p := policy(NamespacesPolicy, rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "namespaceoffloadings", admissionv1.Create),
		rule("", "v1", "namespaces", admissionv1.Create, admissionv1.Update))
	p.Spec.MatchConditions = []admissionv1.MatchCondition{{
		Name: "offloads-a-namespace",
		Expression: `request.kind.kind != "Namespace" || ` + has("dyn(object)", v1alpha1.LabelOffload, "true") +
			` && (oldObject == null || !` + has("dyn(oldObject)", v1alpha1.LabelOffload, "true") + `)`,
	}}
	p.Spec.Variables = []admissionv1.Variable{{Name: "ns", Expression: `request.kind.kind == "Namespace" ? dyn(object) : dyn(namespaceObject)`}}
	var system []string
	for _, prefix := range v1alpha1.SystemPrefixes {
		system = append(system, `variables.ns.metadata.name.startsWith("`+prefix+`")`)
	}
	p.Spec.Validations = []admissionv1.Validation{
		refuse(`!(`+strings.Join(system, " || ")+`)`, `namespaces of Kubernetes and of Kith themselves (`+strings.Join(v1alpha1.SystemPrefixes, ", ")+`) are not offloaded`),
		// But for what Kith does itself: those whose pods go on (SharingPolicy spec.reofferFrom) it offloads, and labels with what for.
		refuse(`!`+has("variables.ns", v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)+` || (request.kind.kind == "Namespace" ? has(variables.ns.metadata.annotations) && "`+v1alpha1.AnnotationStrategy+
			`" in variables.ns.metadata.annotations : `+has("dyn(object)", v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)+`)`, `a namespace that Kith made for a peer's is not offloaded`),
	}
	return p
}

const (
	labelKey   = `matches("^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$")`
	labelValue = `matches("^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$")`
)

// selectors says what a label selector may be: a malformed one selects nobody, and its author would not learn it.
func selectors() *admissionv1.ValidatingAdmissionPolicy {
	p := policy(SelectorsPolicy)
	for _, resource := range []string{"sharingpolicies", "tetherpolicies", "peeringpolicies"} {
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules,
			rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, resource, admissionv1.Create, admissionv1.Update))
	}
	p.Spec.MatchConditions = []admissionv1.MatchCondition{{
		Name: "says-another-selector",
		Expression: `has(object.spec.peerSelector) && (oldObject == null || !has(oldObject.spec.peerSelector) || ` +
			`oldObject.spec.peerSelector != object.spec.peerSelector)`,
	}}
	p.Spec.Variables = []admissionv1.Variable{
		{Name: "labels", Expression: `has(object.spec.peerSelector.matchLabels) ? object.spec.peerSelector.matchLabels : {}`},
		{Name: "expressions", Expression: `has(object.spec.peerSelector.matchExpressions) ? object.spec.peerSelector.matchExpressions : []`},
	}
	p.Spec.Validations = []admissionv1.Validation{
		refuse(`variables.labels.all(k, k.`+labelKey+`) && variables.expressions.all(e, e.key.`+labelKey+`)`,
			`spec.peerSelector: a key must be that of a label: a name, or a domain, a slash and a name`),
		refuse(`variables.labels.all(k, variables.labels[k].`+labelValue+`) && variables.expressions.all(e, !has(e.values) || e.values.all(v, v.`+labelValue+`))`,
			`spec.peerSelector: a value must be that of a label: at most 63 letters, digits, -, _ and .`),
		refuse(`variables.expressions.all(e, e.operator in ["In", "NotIn"] ? has(e.values) && size(e.values) > 0 :
  e.operator in ["Exists", "DoesNotExist"] && (!has(e.values) || size(e.values) == 0))`,
			`spec.peerSelector: an operator must be In or NotIn, with values, or Exists or DoesNotExist, without`),
	}
	return p
}

// peers says that this cluster is not a peer of its own, and what api.CheckAsked says of amounts, in the form in which Kubernetes writes
// them. (In a schema the cost of that would be estimated by the longest text that a quantity could be, and be too much.) What is no short
// plain number goes no further: an exponent may take hours to read.
func peers(id string) *admissionv1.ValidatingAdmissionPolicy {
	p := policy(PeersPolicy, rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "peers", admissionv1.Create, admissionv1.Update))
	p.Spec.Variables = []admissionv1.Variable{
		{Name: "asked", Expression: `has(object.spec.request) && has(object.spec.request.resources) && (oldObject == null ||
  !has(oldObject.spec.request) || !has(oldObject.spec.request.resources) || oldObject.spec.request.resources != object.spec.request.resources) ?
  object.spec.request.resources : {}`},
		{Name: "plain", Expression: `variables.asked.all(k, string(variables.asked[k]).matches("^[0-9]{1,15}([.][0-9]{1,15})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"))`},
	}
	asked := func(name, expression string) string {
		return `!variables.plain || variables.asked.all(k, !(` + name + `) || ` + strings.ReplaceAll(expression, "AMOUNT", "quantity(string(variables.asked[k]))") + `)`
	}
	const bytes = `k in ["memory", "ephemeral-storage", "storage"] || k.endsWith(".storageclass.storage.k8s.io/requests.storage")`
	p.Spec.Validations = []admissionv1.Validation{
		refuse(`oldObject != null || object.spec.id != "`+id+`"`, `spec.id: a Peer must be another cluster: this one has that ID`),
		refuse(`variables.plain`, `spec.request.resources: an amount must be a quantity such as 2, 500m or 4Gi`),
		refuse(asked(`k == "cpu"`, `AMOUNT.compareTo(quantity("1m")) >= 0`), `spec.request.resources: of cpu, ask for 1m or more, such as 500m or 2`),
		refuse(asked(bytes, `AMOUNT.compareTo(quantity("1Mi")) >= 0`),
			`spec.request.resources: of memory and storage, ask for 1Mi or more, such as 512Mi or 4Gi: without a unit it is a number of bytes`),
		refuse(asked(`k != "cpu" && !(`+bytes+`)`, `AMOUNT.isInteger() && AMOUNT.compareTo(quantity("1")) >= 0`),
			`spec.request.resources: of all but cpu, memory and storage, ask for a whole number, 1 or more`),
	}
	return p
}

func policy(name string, rules ...admissionv1.NamedRuleWithOperations) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail), MatchConstraints: &admissionv1.MatchResources{ResourceRules: rules},
		},
	}
}

func rule(group, version, resource string, operations ...admissionv1.OperationType) admissionv1.NamedRuleWithOperations {
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: operations, Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}}
}

func refuse(unless, message string) admissionv1.Validation {
	return admissionv1.Validation{Expression: unless, Message: message, Reason: new(metav1.StatusReasonInvalid)}
}
