package metrics

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/metrics/pkg/apis/metrics/install"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// reader is the role that adds the API to those of whoever may view, edit or administrate, as a metrics-server's does.
const reader = "system:aggregated-metrics-reader"

// Objects register the API, unless somebody registered a server of his own for it, which then answers instead. Turned off,
// what was registered here goes.
func Objects(ctx context.Context, client kubernetes.Interface, services apiregistration.APIServiceInterface, on bool) error {
	name := Version.Version + "." + Version.Group
	there, err := services.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	found := err == nil
	if !on {
		if found && there.Spec.Service == nil { // nobody but this server serves without a service
			return services.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(there.UID))})
		}
		return nil
	}
	if _, err := client.RbacV1().ClusterRoles().Apply(ctx, rbacac.ClusterRole(reader).WithLabels(map[string]string{
		"rbac.authorization.k8s.io/aggregate-to-view": "true", "rbac.authorization.k8s.io/aggregate-to-edit": "true",
		"rbac.authorization.k8s.io/aggregate-to-admin": "true",
	}).WithRules(rbacac.PolicyRule().WithAPIGroups(Version.Group).WithResources("pods", "nodes").WithVerbs("get", "list", "watch")),
		metav1.ApplyOptions{FieldManager: "kith-k8s", Force: true}); err != nil {
		return err
	}
	if found {
		return nil
	}
	_, err = services.Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: Version.Group, Version: Version.Version,
			GroupPriorityMinimum: 100, VersionPriority: 100, // as a metrics-server's
		},
	}, metav1.CreateOptions{FieldManager: "kith-k8s"})
	return err
}

// Version is that of the API that is served.
var Version = v1beta1.SchemeGroupVersion

// Register makes the API's types known to the API server, which must not have been configured yet: it describes them (OpenAPI)
// by what it knows.
func Register() { install.Install(legacyscheme.Scheme) }

// Install has an API server, which must not have been prepared to run, serve s.
func Install(api *genericapiserver.GenericAPIServer, s *Server) error {
	group := genericapiserver.NewDefaultAPIGroupInfo(metrics.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	group.VersionedResourcesStorageMap[Version.Version] = map[string]rest.Storage{"pods": podMetrics{s}, "nodes": nodeMetrics{s}}
	return api.InstallAPIGroup(&group)
}
