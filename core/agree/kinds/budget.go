package kinds

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"kith.dev/core/api/v1alpha1"
)

// PodDisruptionBudget goes wherever its namespace has a twin: what drains the peer's node asks it before it evicts a guest.
var PodDisruptionBudget = &Kind{
	Name: "PodDisruptionBudget", Resource: policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), Type: &policyv1.PodDisruptionBudget{}, Direction: Out,
	Informer: func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Policy().V1().PodDisruptionBudgets().Informer()
	},
	Quota:          Quota{Name: "count/poddisruptionbudgets.policy", Most: 100}, // each change of a guest has all of its namespace compared
	MetadataPolicy: "tenants-disruptions",
	Bounds: []Bound{{Name: "tenants-budgets", Rules: []Rule{
		{`has(object.spec.selector) && has(object.spec.selector.matchLabels) && "kith.dev/managed-by" in object.spec.selector.matchLabels && object.spec.selector.matchLabels["kith.dev/managed-by"] == "kith"`,
			"spec.selector.matchLabels: kith.dev/managed-by=kith is missing, a budget is for guests only"},
		{fmt.Sprintf(`!has(object.spec.selector) || (!has(object.spec.selector.matchLabels) || size(object.spec.selector.matchLabels) <= %[1]d) && (!has(object.spec.selector.matchExpressions) || size(object.spec.selector.matchExpressions) <= %[1]d && object.spec.selector.matchExpressions.all(e, !has(e.values) || size(e.values) <= %[1]d))`, maxTerms),
			fmt.Sprintf("spec.selector: more than %d labels, expressions, or values of one", maxTerms)},
		{`has(object.spec.minAvailable) && type(object.spec.minAvailable) == int && !has(object.spec.maxUnavailable)`,
			"spec.minAvailable: must be a number; guests have no controller here by which shares could be counted"},
	}}},
	Map: mapping(mapBudget),
	Depends: func(home Object, there *There) string {
		budget, why := mapBudget(home.(*policyv1.PodDisruptionBudget), there)
		if why != "" {
			return ""
		}
		return budget.Spec.MinAvailable.String()
	},
	OfPods: true,
	TakeOut: takingOut(func(got, want *policyv1.PodDisruptionBudget) bool {
		found := !equality.Semantic.DeepEqual(got.Spec, want.Spec)
		got.Spec = want.Spec
		return found
	}),
}

// maxTerms is how many terms a selector may have, and values each.
const maxTerms = 32

// mapBudget gives the budget abroad. Only home counts all pods, and knows the controllers by which shares are counted; the
// peer sees its guests alone, which have none. So of them at least as many must stay healthy as home still needs, beside those
// that are healthy elsewhere, and no more may go than home allows now. What home has not counted yet, none may.
func mapBudget(home *policyv1.PodDisruptionBudget, there *There) (*policyv1.PodDisruptionBudget, string) {
	if home.Spec.Selector == nil {
		return nil, "spec.selector: is missing, so it is for no pods"
	}
	selector, err := metav1.LabelSelectorAsSelector(home.Spec.Selector)
	if err != nil {
		return nil, fmt.Sprintf("spec.selector: %v", err)
	}
	guests, elsewhere := there.Healthy(selector)
	allowed := home.Status.DisruptionsAllowed
	if home.Status.ObservedGeneration < home.Generation {
		allowed = 0
	}
	least := intstr.FromInt32(max(home.Status.DesiredHealthy-elsewhere, guests-allowed, 0))
	out := &policyv1.PodDisruptionBudget{ObjectMeta: Marked(there.Twin, home.Name), Spec: *home.Spec.DeepCopy()}
	out.Spec.MinAvailable, out.Spec.MaxUnavailable = &least, nil
	metav1.AddLabelToSelector(out.Spec.Selector, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
	return out, ""
}
