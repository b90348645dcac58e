package server

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"kith.dev/engine/metrics"
)

// biggestSummary is what is read of a kubelet's answer. It has a few kilobytes for each pod.
const biggestSummary = 8 << 20

// resourceMetrics gives what has the API server serve metrics.k8s.io, or nil. The listers are those of informers that the
// authorizer of nodes runs in any case.
func (s *server) resourceMetrics() func(*genericapiserver.GenericAPIServer, informers.SharedInformerFactory) error {
	if !s.config.ResourceMetrics {
		return nil
	}
	metrics.Register()
	return func(api *genericapiserver.GenericAPIServer, informers informers.SharedInformerFactory) error {
		core := informers.Core().V1()
		return metrics.Install(api, metrics.New(s.summary, core.Pods().Lister(), core.Nodes().Lister(), s.log))
	}
}

// summary asks a node's kubelet through the API server, which knows the way to each and has the certificates.
func (s *server) summary(ctx context.Context, node string) ([]byte, error) {
	body, err := s.client.CoreV1().RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("stats/summary").
		Param("only_cpu_and_memory", "true").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, biggestSummary+1))
	if err == nil && len(b) > biggestSummary {
		err = fmt.Errorf("the answer has more than %d bytes", biggestSummary)
	}
	return b, err
}

// metricsReader is the role that adds the API to those of whoever may view, edit or administrate, as a metrics-server's does.
const metricsReader = "system:aggregated-metrics-reader"

// metricsObjects register the API, unless somebody registered a server of his own for it, which then answers instead. Turned off,
// what was registered here goes.
func metricsObjects(ctx context.Context, client kubernetes.Interface, services apiregistration.APIServiceInterface, on bool) error {
	name := metrics.Version.Version + "." + metrics.Version.Group
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
	if _, err := client.RbacV1().ClusterRoles().Apply(ctx, rbacac.ClusterRole(metricsReader).WithLabels(map[string]string{
		"rbac.authorization.k8s.io/aggregate-to-view": "true", "rbac.authorization.k8s.io/aggregate-to-edit": "true",
		"rbac.authorization.k8s.io/aggregate-to-admin": "true",
	}).WithRules(rbacac.PolicyRule().WithAPIGroups(metrics.Version.Group).WithResources("pods", "nodes").WithVerbs("get", "list", "watch")),
		metav1.ApplyOptions{FieldManager: "kith-k8s", Force: true}); err != nil {
		return err
	}
	if found {
		return nil
	}
	_, err = services.Create(ctx, &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: metrics.Version.Group, Version: metrics.Version.Version,
			GroupPriorityMinimum: 100, VersionPriority: 100, // as a metrics-server's
		},
	}, metav1.CreateOptions{FieldManager: "kith-k8s"})
	return err
}
