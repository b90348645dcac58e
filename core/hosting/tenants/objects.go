package tenants

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	psa "k8s.io/pod-security-admission/api"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/hosting/door"
	"kith.dev/core/hosting/grants"
)

const (
	tenantRole = "kith:tenant" // ClusterRole, and the RoleBinding in each twin namespace
	quotaName  = "kith"
)

// tenantRules is all a consumer may do, in its twin namespaces. WebSocket exec, attach and port-forward
// are a get and, since Kubernetes 1.35, a create as well (KEP-4006 and its authorization follow-up).
func tenantRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"offloadedpods"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/exec", "pods/attach", "pods/portforward"}, Verbs: []string{"get", "create"}},
	}
}

func tenantClusterRole(bounded bool) *rbacv1ac.ClusterRoleApplyConfiguration {
	role := rbacv1ac.ClusterRole(tenantRole).WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	rules := tenantRules()
	if bounded {
		rules = append(rules, door.ReflectedRules()...)
	}
	for _, rule := range rules {
		role.WithRules(rbacv1ac.PolicyRule().WithAPIGroups(rule.APIGroups...).WithResources(rule.Resources...).WithVerbs(rule.Verbs...))
	}
	return role
}

func namespaceLabels(home string, t *grants.Terms) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy:     v1alpha1.ManagedBy,
		v1alpha1.LabelConsumer:      t.Consumer.Compact,
		v1alpha1.LabelConsumerName:  grants.LabelValue(t.Consumer.Name),
		v1alpha1.LabelHomeNamespace: home,
		v1alpha1.LabelContract:      t.Contract,
		psa.EnforceLevelLabel:       string(t.Level), // no audit, no warn: nobody here would read them
		psa.EnforceVersionLabel:     psa.VersionLatest,
	}
}

func namespaceObject(tw grants.Twin, t *grants.Terms) *corev1ac.NamespaceApplyConfiguration {
	return corev1ac.Namespace(tw.Name).WithUID(tw.UID).WithLabels(namespaceLabels(tw.Home, t)).
		WithAnnotations(map[string]string{grants.AnnotationAliases: t.Aliases, v1alpha1.AnnotationRegistries: t.Images.Annotation()})
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
// when one is made again, and refuses containers that are silent about cpu and memory.
func quotaFor(limit corev1.ResourceList) corev1.ResourceList {
	hard := corev1.ResourceList{
		corev1.ResourceServicesNodePorts:     *resource.NewQuantity(0, resource.DecimalSI),
		corev1.ResourceServicesLoadBalancers: *resource.NewQuantity(0, resource.DecimalSI),
		corev1.ResourceRequestsStorage:       *resource.NewQuantity(0, resource.BinarySI),
	}
	// Of what reflection brings: each is 1 MiB at most. One Secret for each pod, and those the pods refer to.
	pods := limit[corev1.ResourcePods]
	for name, most := range map[corev1.ResourceName]int64{
		corev1.ResourceServices: 500, "count/endpointslices.discovery.k8s.io": 1000,
		corev1.ResourceConfigMaps: 250, corev1.ResourceSecrets: 250 + pods.Value(),
	} {
		hard[name] = *resource.NewQuantity(most, resource.DecimalSI)
	}
	if storage, ok := limit[corev1.ResourceStorage]; ok {
		hard[corev1.ResourceRequestsStorage] = storage.DeepCopy()
	}
	return hard
}
