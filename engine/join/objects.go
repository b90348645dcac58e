package join

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

const manager = "kith-k8s"

// Objects puts into the cluster what nodes need to join and to be nodes: cluster-info, which anybody may read, the settings, and what the
// groups of those who come with a token, and of nodes, may do. ca is the authority's certificate in PEM.
func Objects(ctx context.Context, client kubernetes.Interface, c Cluster, ca []byte, port int) error {
	force := metav1.ApplyOptions{FieldManager: manager, Force: true}
	var errs []error
	applied := func(_ any, err error) { errs = append(errs, err) }
	const system, public = metav1.NamespaceSystem, metav1.NamespacePublic
	group := func(name string) *rbacac.SubjectApplyConfiguration {
		return rbacac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.GroupKind).WithName(name)
	}
	rule := rbacac.PolicyRule
	role := func(kind, name string) *rbacac.RoleRefApplyConfiguration {
		return rbacac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
	}

	info, err := clientcmd.Write(api.Config{Clusters: map[string]*api.Cluster{
		"": {Server: fmt.Sprintf("https://%s", netip.AddrPortFrom(c.ServerLAN, uint16(port))), CertificateAuthorityData: ca},
	}})
	if err != nil {
		return err
	}
	applied(client.CoreV1().ConfigMaps(public).Apply(ctx, coreac.ConfigMap(infoName, public).WithData(map[string]string{bootstrapapi.KubeConfigKey: string(info)}), force))
	applied(client.RbacV1().Roles(public).Apply(ctx, rbacac.Role("kith:cluster-info", public).WithRules(
		rule().WithAPIGroups("").WithResources("configmaps").WithResourceNames(infoName).WithVerbs("get"),
	), force))
	applied(client.RbacV1().RoleBindings(public).Apply(ctx, rbacac.RoleBinding("kith:cluster-info", public).
		WithRoleRef(role("Role", "kith:cluster-info")).
		WithSubjects(rbacac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName("system:anonymous")), force))

	applied(client.RbacV1().ClusterRoleBindings().Apply(ctx, rbacac.ClusterRoleBinding("kith:join").
		WithRoleRef(role("ClusterRole", "system:node-bootstrapper")).WithSubjects(group(joinGroup)), force))
	// To be told that the name is taken, before anything is made.
	applied(client.RbacV1().ClusterRoles().Apply(ctx, rbacac.ClusterRole("kith:join-names").WithRules(
		rule().WithAPIGroups("").WithResources("nodes").WithVerbs("get"),
	), force))
	applied(client.RbacV1().ClusterRoleBindings().Apply(ctx, rbacac.ClusterRoleBinding("kith:join-names").
		WithRoleRef(role("ClusterRole", "kith:join-names")).WithSubjects(group(joinGroup)), force))

	applied(client.CoreV1().ConfigMaps(system).Apply(ctx, coreac.ConfigMap(settingsName, system).WithData(c.data()), force))
	applied(client.RbacV1().Roles(system).Apply(ctx, rbacac.Role("kith:node", system).WithRules(
		rule().WithAPIGroups("").WithResources("configmaps").WithResourceNames(settingsName).WithVerbs("get"),
	), force))
	applied(client.RbacV1().RoleBindings(system).Apply(ctx, rbacac.RoleBinding("kith:node", system).
		WithRoleRef(role("Role", "kith:node")).WithSubjects(group(nodeGroup)), force))
	// What a kubelet may is the Node authorizer's. These are kube-proxy's rights, and what NetworkPolicies and volumes take: elsewhere the
	// pods of a network plugin have them, on every node.
	applied(client.RbacV1().ClusterRoles().Apply(ctx, rbacac.ClusterRole("kith:node").WithRules(
		rule().WithAPIGroups("").WithResources("services", "nodes", "pods", "namespaces", "persistentvolumes").WithVerbs("get", "list", "watch"),
		rule().WithAPIGroups("discovery.k8s.io").WithResources("endpointslices").WithVerbs("list", "watch"),
		rule().WithAPIGroups("networking.k8s.io").WithResources("networkpolicies", "servicecidrs").WithVerbs("list", "watch"),
	), force))
	applied(client.RbacV1().ClusterRoleBindings().Apply(ctx, rbacac.ClusterRoleBinding("kith:node").
		WithRoleRef(role("ClusterRole", "kith:node")).WithSubjects(group(nodeGroup)), force))
	return errors.Join(errs...)
}

// Withdraw takes away what lets strangers ask, in a cluster that nodes may join no more; what is for nodes stays.
func Withdraw(ctx context.Context, client kubernetes.Interface) error {
	var errs []error
	gone := func(err error) {
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	gone(client.CoreV1().ConfigMaps(metav1.NamespacePublic).Delete(ctx, infoName, metav1.DeleteOptions{}))
	gone(client.RbacV1().RoleBindings(metav1.NamespacePublic).Delete(ctx, "kith:cluster-info", metav1.DeleteOptions{}))
	gone(client.RbacV1().ClusterRoleBindings().Delete(ctx, "kith:join", metav1.DeleteOptions{}))
	gone(client.RbacV1().ClusterRoleBindings().Delete(ctx, "kith:join-names", metav1.DeleteOptions{}))
	return errors.Join(errs...)
}
