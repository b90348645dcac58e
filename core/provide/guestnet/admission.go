package guestnet

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
)

// Group of the links (IFLA_GROUP, "kg" in ASCII) that lead to guests. The engine puts a link into it, with the pod's UID as its alias,
// before the pod's first program runs.
const Group = 0x6b67

// Runtime is the RuntimeClass whose pods get such a link. The engine makes it, by the same name.
const Runtime = "kith-guest"

// DeviceRuntime is the RuntimeClass that gives a guest what the class nvidia gives a pod of the owner's, and such a link. The engine makes it
// where it finds NVIDIA's runtime.
const DeviceRuntime = Runtime + "-nvidia"

// With is the class of guests that are to have another class too; "" where the two cannot be combined. A pod has one class, so the engine has
// to know the runtime behind the other.
func With(class string) string {
	if class == "nvidia" {
		return DeviceRuntime
	}
	return ""
}

// PolicyName is the name of the MutatingAdmissionPolicy and of its binding.
const PolicyName = "fence.kith.dev"

// Objects are what has the API server put every guest behind a marked link, whoever makes the pod: one that carries a
// consumer's label cannot come into being without. They are for engines that have Runtime.
func Objects() []client.Object {
	return []client.Object{policy(), binding(), runtimeClass()}
}

// runtimeClass is the engine's, which makes it; who made another of its name would have guests beside the fence. It says of no node that guests are to
// stay there, for some may go on to virtual ones: hosting keeps each to nodes where a fence is alive, and to those.
func runtimeClass() *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodev1.SchemeGroupVersion.String(), Kind: "RuntimeClass"},
		ObjectMeta: metav1.ObjectMeta{Name: Runtime},
		Handler:    Runtime,
	}
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
				PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: `Object{spec: Object.spec{runtimeClassName: has(object.spec.runtimeClassName) && object.spec.runtimeClassName == "` +
					DeviceRuntime + `" ? "` + DeviceRuntime + `" : "` + Runtime + `"}}`},
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
