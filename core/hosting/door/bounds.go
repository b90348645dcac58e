package door

import (
	"cmp"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/grants"
)

// rule is one thing a consumer must keep to.
type rule struct{ expression, message string }

// bound is an admission policy for what consumers write in their twins.
type bound struct {
	name, group string
	version     string // v1 when it is empty
	resources   []string
	deletes     bool
	variables   []admissionv1.Variable
	rules       []rule
}

// listed makes a list from an annotation of the namespace.
func listed(variable, annotation string) admissionv1.Variable {
	return admissionv1.Variable{Name: variable, Expression: fmt.Sprintf(
		`has(namespaceObject.metadata.annotations) && %[1]q in namespaceObject.metadata.annotations ? namespaceObject.metadata.annotations[%[1]q].split(",").filter(s, s != "") : []`, annotation)}
}

const (
	oursWas = `oldObject == null || (has(oldObject.metadata.labels) && "kith.dev/managed-by" in oldObject.metadata.labels && oldObject.metadata.labels["kith.dev/managed-by"] == "kith")`
	oursIs  = `object == null || (has(object.metadata.labels) && "kith.dev/managed-by" in object.metadata.labels && object.metadata.labels["kith.dev/managed-by"] == "kith")`
)

// metadataRules hold for every kind. Labels and annotations of others are what controllers here act upon, finalizers
// would hold the namespace back for ever.
var metadataRules = []rule{
	{oursWas, "the object was not made by Kith"},
	{oursIs, "the label kith.dev/managed-by=kith is missing"},
	{`object == null || !has(object.metadata.annotations) || object.metadata.annotations.all(k, k.startsWith("kith.dev/"))`, "annotations other than those of kith.dev are not taken"},
	{`object == null || object.metadata.labels.all(k, k.startsWith("kith.dev/") || k in ["kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by", "service.kubernetes.io/headless"])`, "labels other than those of kith.dev are not taken"},
	{`object == null || !has(object.metadata.finalizers) || size(object.metadata.finalizers) == 0`, "finalizers are not taken"},
	{`object == null || !has(object.metadata.ownerReferences) || size(object.metadata.ownerReferences) == 0`, "owner references are not taken"},
	marksRule, writersRule,
}

// Sizes, of what is kept in the end: patches add up.
var (
	marksRule = rule{fmt.Sprintf(`object == null || (!has(object.metadata.labels) || size(object.metadata.labels) <= %[1]d) && (!has(object.metadata.annotations) || size(object.metadata.annotations) <= %[1]d && object.metadata.annotations.all(k, size(object.metadata.annotations[k]) <= %[2]d))`, maxMarks, maxMark),
		fmt.Sprintf("metadata: more than %d labels or annotations, or one of more than %d characters", maxMarks, maxMark)}
	writersRule = rule{fmt.Sprintf(`object == null || !has(object.metadata.managedFields) || size(object.metadata.managedFields) <= %d`, maxWriters),
		fmt.Sprintf("metadata.managedFields: more than %d writers", maxWriters)}
)

// maxWriters is how many field managers may share an object: the API server keeps a list of fields for each.
const maxWriters = 16

// ownRules hold for the metadata of an OffloadedPod: there is nothing on it but what is Kith's, or the cluster's own.
var ownRules = []rule{
	{`!has(object.metadata.ownerReferences) || size(object.metadata.ownerReferences) == 0`, "metadata.ownerReferences: are not taken"},
	{fmt.Sprintf(`!has(object.metadata.finalizers) || object.metadata.finalizers.all(f, f == %q || oldObject != null && has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers)`, v1alpha1.FinalizerOffloadedPod),
		"metadata.finalizers: others than kith.dev/pod are not taken"},
	{`!has(object.metadata.labels) || object.metadata.labels.all(k, k.startsWith("kith.dev/") || oldObject != null && has(oldObject.metadata.labels) && k in oldObject.metadata.labels && oldObject.metadata.labels[k] == object.metadata.labels[k])`,
		"metadata.labels: others than those of kith.dev are not taken"},
	{`!has(object.metadata.annotations) || object.metadata.annotations.all(k, k.startsWith("kith.dev/") || oldObject != null && has(oldObject.metadata.annotations) && k in oldObject.metadata.annotations && oldObject.metadata.annotations[k] == object.metadata.annotations[k])`,
		"metadata.annotations: others than those of kith.dev are not taken"},
	marksRule, writersRule,
}

// entriesRule bounds what a ConfigMap or Secret holds.
func entriesRule(field string) rule {
	return rule{fmt.Sprintf(`!has(object.%[1]s) || size(object.%[1]s) <= %[2]d`, field, maxEntries), fmt.Sprintf("%s: more than %d entries", field, maxEntries)}
}

// localName: names inside this cluster, or the host itself. Those of the own namespace are the consumer's.
const localName = `object.spec.externalName.lowerAscii().matches("(^|[.])(localhost|svc|local)[.]?$") && !object.spec.externalName.lowerAscii().contains("." + object.metadata.namespace + ".svc")`

// ReflectedRules is what a consumer may do besides, where the admission policies (bounds) hold it to what it should.
func ReflectedRules() []rbacv1.PolicyRule {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "configmaps", "secrets"}, Verbs: verbs},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: verbs},
	}
}

// bounds are the policies (KEP-3488). Their expressions are CEL.
var bounds = []bound{
	{name: "tenants-objects", group: "", resources: []string{"services", "configmaps", "secrets"}, deletes: true, rules: metadataRules},
	{name: "tenants-slices", group: "discovery.k8s.io", resources: []string{"endpointslices"}, deletes: true, rules: metadataRules},
	{
		name: "tenants-addresses", group: "discovery.k8s.io", resources: []string{"endpointslices"},
		variables: []admissionv1.Variable{listed("ranges", grants.AnnotationAliases), listed("guests", grants.AnnotationGuests)},
		rules: []rule{
			{`object.addressType == "IPv4"`, "addressType: only IPv4 reaches a peer"},
			{`has(object.metadata.labels) && "endpointslice.kubernetes.io/managed-by" in object.metadata.labels && object.metadata.labels["endpointslice.kubernetes.io/managed-by"] == "kith.dev"`,
				"the label endpointslice.kubernetes.io/managed-by=kith.dev is missing"},
			{`object.endpoints.all(e, e.addresses.all(a, a in variables.guests || variables.ranges.exists(r, cidr(r).containsIP(a))))`,
				"endpoints: an address is neither in the consumer's own ranges nor that of one of its guests"},
		},
	},
	{
		name: "tenants-sizes", group: "discovery.k8s.io", resources: []string{"endpointslices"},
		rules: []rule{{
			fmt.Sprintf(`(has(object.endpoints) ? object.endpoints.map(e, size(e.addresses)).sum() : 0) * (has(object.ports) && size(object.ports) > 0 ? size(object.ports) : 1) <= %d`, maxPairs),
			fmt.Sprintf("endpoints, ports: more than %d pairs of address and port", maxPairs),
		}},
	},
	{name: "tenants-pods", group: v1alpha1.GroupVersion.Group, version: v1alpha1.GroupVersion.Version, resources: []string{"offloadedpods"}, rules: ownRules},
	{name: "tenants-configmaps", group: "", resources: []string{"configmaps"}, rules: []rule{entriesRule("data"), entriesRule("binaryData")}},
	{
		name: "tenants-services", group: "", resources: []string{"services"},
		rules: []rule{
			{fmt.Sprintf(`!has(object.spec.ports) || size(object.spec.ports) <= %d`, maxPorts), fmt.Sprintf("spec.ports: more than %d", maxPorts)},
			{`!has(object.spec.type) || object.spec.type in ["ClusterIP", "ExternalName"]`, "spec.type: must be ClusterIP or ExternalName"},
			{`!has(object.spec.externalIPs) || size(object.spec.externalIPs) == 0`, "spec.externalIPs: not allowed"},
			{`!has(object.spec.externalName) || object.spec.externalName == "" || !(` + localName + `)`, "spec.externalName: names of this cluster are not allowed"},
		},
	},
	{
		name: "tenants-secrets", group: "", resources: []string{"secrets"},
		rules: []rule{entriesRule("data"), {
			`!has(object.type) || object.type in ["Opaque", "kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg", "kubernetes.io/tls", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"]`,
			"type: this type of Secret means something in this cluster",
		}},
	},
}

func (b bound) policy() *admissionv1.ValidatingAdmissionPolicy {
	operations := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	if b.deletes {
		operations = append(operations, admissionv1.Delete)
	}
	fail, forbidden := admissionv1.Fail, metav1.StatusReasonForbidden // "Invalid" would say that the object can never be
	p := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: b.metadata(),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: operations,
				Rule:       admissionv1.Rule{APIGroups: []string{b.group}, APIVersions: []string{cmp.Or(b.version, "v1")}, Resources: b.resources},
			}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "by-a-consumer", Expression: fmt.Sprintf(`request.userInfo.groups.exists(g, g == %q)`, Group)}},
			Variables:       b.variables,
		},
	}
	for _, r := range b.rules {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: r.expression, Message: "kith: " + r.message, Reason: &forbidden})
	}
	return p
}

func (b bound) binding() *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: b.metadata(),
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: b.objectName(), ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
}

// Policies are all policies, each with its binding.
func Policies() (list []client.Object) {
	for _, b := range bounds {
		list = append(list, b.policy(), b.binding())
	}
	return list
}

func (b bound) objectName() string { return b.name + ".kith.dev" }

func (b bound) metadata() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: b.objectName(), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}
}
