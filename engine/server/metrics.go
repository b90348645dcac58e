package server

import (
	"context"
	"fmt"
	"io"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"

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
