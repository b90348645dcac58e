package fence

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// PolicyName is the name of the MutatingAdmissionPolicy and of its binding.
const PolicyName = "fence.kith.dev"

// GuestRuntime is the RuntimeClass whose pods get a marked link. The built-in engine makes it.
const GuestRuntime = "kith-guest"

// Install has the API server put every guest behind a marked link, whoever makes the pod: one that carries a
// consumer's label cannot come into being without. Idempotent. It is for engines that have GuestRuntime.
func Install(ctx context.Context, c client.Client) error {
	for _, obj := range []client.Object{policy(), binding()} {
		//nolint:staticcheck // generated apply configurations of the whole policy would say the same thing twice
		if err := c.Patch(ctx, obj, client.Apply, client.FieldOwner(v1alpha1.ManagedBy), client.ForceOwnership); err != nil {
			return fmt.Errorf("install the admission policy %s: %w", PolicyName, err)
		}
	}
	return nil
}

func policy() *admissionv1.MutatingAdmissionPolicy {
	return &admissionv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: v1alpha1.LabelConsumer, Operator: metav1.LabelSelectorOpExists,
				}}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: `Object{spec: Object.spec{runtimeClassName: "` + GuestRuntime + `"}}`},
			}},
			FailurePolicy:      new(admissionv1.Fail),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		},
	}
}

func binding() *admissionv1.MutatingAdmissionPolicyBinding {
	return &admissionv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: PolicyName, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: PolicyName},
	}
}
