package metrics

import (
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/metrics/pkg/apis/metrics/install"
	"k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

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
