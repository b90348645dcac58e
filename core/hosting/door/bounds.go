package door

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/kinds"
)

func policyOf(b kinds.Bound) *admissionv1.ValidatingAdmissionPolicy {
	operations := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	if b.Deletes {
		operations = append(operations, admissionv1.Delete)
	}
	group, resources := b.Kinds[0].Resource.GroupVersion(), []string(nil)
	for _, k := range b.Kinds {
		resources = append(resources, k.Resource.Resource)
	}
	fail, forbidden := admissionv1.Fail, metav1.StatusReasonForbidden // "Invalid" would say that the object can never be
	p := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metadataOf(b),
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: operations,
				Rule:       admissionv1.Rule{APIGroups: []string{group.Group}, APIVersions: []string{group.Version}, Resources: resources},
			}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "by-a-consumer", Expression: fmt.Sprintf(`request.userInfo.groups.exists(g, g == %q)`, Group)}},
			Variables:       b.Variables,
		},
	}
	for _, r := range b.Rules {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: r.Expression, Message: "kith: " + r.Message, Reason: &forbidden})
	}
	return p
}

func bindingOf(b kinds.Bound) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metadataOf(b),
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: b.Name + ".kith.dev", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
}

// Policies are the admission policies of the table of kinds, each with its binding.
func Policies() (list []client.Object) {
	for _, b := range kinds.Bounds() {
		list = append(list, policyOf(b), bindingOf(b))
	}
	return list
}

func metadataOf(b kinds.Bound) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: b.Name + ".kith.dev", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}
}
