package kinds

import (
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Rights is what a consumer may do in its twins. bounded tells whether this cluster has admission policies: without Bounds it
// must not write what they hold.
func Rights(bounded bool) []rbacv1.PolicyRule {
	rules := append(rightsTo(which(func(k *Kind) bool { return k.Map == nil })), podRights...)
	if bounded {
		rules = append(rules, rightsTo(Reflected())...)
	}
	return rules
}

// rightsTo has one rule for kinds of the same group and direction that follow each other.
func rightsTo(kinds []*Kind) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for i, k := range kinds {
		if i > 0 && kinds[i-1].Resource.Group == k.Resource.Group && kinds[i-1].Direction == k.Direction {
			last := &rules[len(rules)-1]
			last.Resources = append(last.Resources, k.Resource.Resource)
			continue
		}
		verbs := []string{"get", "list", "watch"}
		if k.Direction != Back {
			verbs = append(verbs, "create", "update", "patch", "delete")
		}
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{k.Resource.Group}, Resources: []string{k.Resource.Resource}, Verbs: verbs})
	}
	return rules
}

// ObjectQuota is how many objects of each kind a twin may hold, under a contract for so many pods.
func ObjectQuota(pods int64) corev1.ResourceList {
	hard := corev1.ResourceList{}
	for _, k := range All {
		if k.Quota.Name != "" {
			hard[k.Quota.Name] = *resource.NewQuantity(k.Quota.Most+k.Quota.PerPod*pods, resource.DecimalSI)
		}
	}
	return hard
}

// Bound is an admission policy (KEP-3488) for what consumers write in their twins. Its expressions are CEL.
type Bound struct {
	Name      string // unique
	Kinds     []*Kind
	Deletes   bool // it is asked about deletions too
	Variables []admissionv1.Variable
	Rules     []Rule
}

// Rule is one thing a consumer must keep to.
type Rule struct{ Expression, Message string }

// Bounds are those of all kinds.
func Bounds() []Bound {
	var all []Bound
	for _, k := range All {
		same := func(b Bound) bool { return b.Name == k.MetadataPolicy }
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].Kinds = append(all[i].Kinds, k)
		} else if k.MetadataPolicy != "" {
			all = append(all, Bound{Name: k.MetadataPolicy, Kinds: []*Kind{k}, Deletes: true, Rules: metadataRules})
		}
		for _, b := range k.Bounds {
			b.Kinds = []*Kind{k}
			all = append(all, b)
		}
	}
	return all
}

// Bounds of what stands on an object of any kind. The door holds bodies to them, and the admission policies the object that comes
// of a patch.
const (
	MaxMarks      = 32 // labels, and annotations
	MaxMark       = 1 << 10
	MaxFinalizers = 4
	// MaxWriters is how many field managers may share an object: the API server keeps a list of fields for each.
	MaxWriters = 16
)

const (
	oursWas = `oldObject == null || (has(oldObject.metadata.labels) && "kith.dev/managed-by" in oldObject.metadata.labels && oldObject.metadata.labels["kith.dev/managed-by"] == "kith")`
	oursIs  = `object == null || (has(object.metadata.labels) && "kith.dev/managed-by" in object.metadata.labels && object.metadata.labels["kith.dev/managed-by"] == "kith")`
)

// metadataRules hold for every kind. Labels and annotations of others are what controllers here act upon, finalizers
// would hold the namespace back for ever.
var metadataRules = []Rule{
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
	marksRule = Rule{fmt.Sprintf(`object == null || (!has(object.metadata.labels) || size(object.metadata.labels) <= %[1]d) && (!has(object.metadata.annotations) || size(object.metadata.annotations) <= %[1]d && object.metadata.annotations.all(k, size(object.metadata.annotations[k]) <= %[2]d))`, MaxMarks, MaxMark),
		fmt.Sprintf("metadata: more than %d labels or annotations, or one of more than %d characters", MaxMarks, MaxMark)}
	writersRule = Rule{fmt.Sprintf(`object == null || !has(object.metadata.managedFields) || size(object.metadata.managedFields) <= %d`, MaxWriters),
		fmt.Sprintf("metadata.managedFields: more than %d writers", MaxWriters)}
)
