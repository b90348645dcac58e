package tenants

import (
	"fmt"
	"maps"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	psa "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/kinds"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
)

const (
	tenantRole = "kith:tenant" // ClusterRole, and the RoleBinding in each twin namespace
	quotaName  = "kith"
)

// tenantClusterRole is all a consumer may do, in its twin namespaces.
func tenantClusterRole(bounded bool) *rbacv1ac.ClusterRoleApplyConfiguration {
	role := rbacv1ac.ClusterRole(tenantRole).WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	for _, rule := range kinds.Rights(bounded) {
		role.WithRules(rbacv1ac.PolicyRule().WithAPIGroups(rule.APIGroups...).WithResources(rule.Resources...).WithVerbs(rule.Verbs...))
	}
	return role
}

func namespaceLabels(tw grants.Twin, t *grants.Terms) map[string]string {
	labels := map[string]string{
		v1alpha1.LabelManagedBy:     v1alpha1.ManagedBy,
		v1alpha1.LabelConsumer:      t.Consumer.Compact,
		v1alpha1.LabelConsumerName:  grants.LabelValue(t.Consumer.Name),
		v1alpha1.LabelHomeNamespace: tw.Home,
		v1alpha1.LabelContract:      t.Contract,
		psa.EnforceLevelLabel:       string(t.Level), // no audit, no warn: nobody here would read them
		psa.EnforceVersionLabel:     psa.VersionLatest,
	}
	if tw.Origin != "" {
		labels[v1alpha1.LabelOrigin], labels[v1alpha1.LabelOriginNamespace] = tw.Origin, tw.OriginHome
	}
	return labels
}

func namespaceObject(tw grants.Twin, t *grants.Terms) *corev1ac.NamespaceApplyConfiguration {
	return corev1ac.Namespace(tw.Name).WithUID(tw.UID).WithLabels(namespaceLabels(tw, t)).
		WithAnnotations(map[string]string{kinds.AnnotationSpace: t.AddressSpace(), v1alpha1.AnnotationRegistries: t.Images.Annotation()})
}

func tenantBinding(namespace string, t *grants.Terms) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(tenantRole, namespace).
		WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: t.Consumer.Compact}).
		WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.UserKind).WithAPIGroup(rbacv1.GroupName).WithName(door.UserPrefix + t.Consumer.ID)).
		WithRoleRef(rbacv1ac.RoleRef().WithKind("ClusterRole").WithAPIGroup(rbacv1.GroupName).WithName(tenantRole))
}

func tenantQuota(namespace string, t *grants.Terms) *corev1ac.ResourceQuotaApplyConfiguration {
	return corev1ac.ResourceQuota(quotaName, namespace).
		WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelConsumer: t.Consumer.Compact}).
		WithSpec(corev1ac.ResourceQuotaSpec().WithHard(quotaFor(t.Limit)))
}

// quotaFor bounds what a consumer writes itself: no Service that opens a port of the host, storage up to the
// contract, and of small objects a sensible number. Pods and what they request are not in it: only hosting
// makes them, the book holds them to the contract over all namespaces at once, and a quota that counts them
// costs a write and a wait for each pod (measured: pods are made at a third to half the rate), lags behind
// when one is made again, and refuses containers that are silent about cpu and memory. Devices are in it: few pods
// ask for them, and of the others a quota of devices counts nothing.
func quotaFor(limit corev1.ResourceList) corev1.ResourceList {
	pods := limit[corev1.ResourcePods]
	hard := kinds.ObjectQuota(pods.Value()) // of what reflection brings: each is 1 MiB at most
	for _, none := range []corev1.ResourceName{corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers, corev1.ResourceRequestsStorage} {
		hard[none] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	classes := corev1.ResourceList{} // of guests' volumes, by their storage class
	for name, q := range limit {
		if class, storage := api.StorageClass(string(name)); storage {
			sum := hard[corev1.ResourceRequestsStorage]
			sum.Add(q)
			hard[corev1.ResourceRequestsStorage] = sum
			classes[corev1.ResourceName(api.StorageOf(v1alpha1.GuestClass(class)))] = q.DeepCopy()
		}
		if api.Extended(string(name)) {
			hard[corev1.DefaultResourceRequestsPrefix+name] = q.DeepCopy()
		}
	}
	if _, one := classes[corev1.ResourceName(api.StorageOf(v1alpha1.GuestStorageClass))]; !one || len(classes) > 1 { // else the sum says it
		maps.Copy(hard, classes)
	}
	return hard
}

// policies are the admission policies by which consumers are held to the bounds of kinds, each with its binding.
func policies() (list []client.Object) {
	fail, forbidden := admissionv1.Fail, metav1.StatusReasonForbidden // "Invalid" would say that the object can never be
	for _, b := range kinds.Bounds() {
		name := metav1.ObjectMeta{Name: b.Name + ".kith.dev", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}}
		of := b.Kinds[0].Resource.GroupVersion()
		rule := admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{of.Group}, APIVersions: []string{of.Version}},
		}
		if b.Deletes {
			rule.Operations = append(rule.Operations, admissionv1.Delete)
		}
		for _, k := range b.Kinds {
			rule.Resources = append(rule.Resources, k.Resource.Resource)
		}
		var validations []admissionv1.Validation
		for _, r := range b.Rules {
			validations = append(validations, admissionv1.Validation{Expression: r.Expression, Message: "kith: " + r.Message, Reason: &forbidden})
		}
		list = append(list, &admissionv1.ValidatingAdmissionPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
			ObjectMeta: name,
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy:    &fail,
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}}},
				MatchConditions:  []admissionv1.MatchCondition{{Name: "by-a-consumer", Expression: fmt.Sprintf(`request.userInfo.groups.exists(g, g == %q)`, door.Group)}},
				Variables:        b.Variables, Validations: validations,
			},
		}, &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: name,
			Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
		})
	}
	return list
}
