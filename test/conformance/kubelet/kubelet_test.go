// Package kubelet runs virtual-kubelet's end-to-end tests against a virtual node of a cluster that is there.
package kubelet

import (
	"flag"
	"testing"

	"github.com/virtual-kubelet/virtual-kubelet/test/e2e"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "`file` that says where the cluster is")
	namespace  = flag.String("namespace", "", "the `namespace` of the pods, an offloaded one")
	node       = flag.String("node", "", "`name` of the virtual node")
)

func TestVirtualNode(t *testing.T) {
	e2e.NewEndToEndTestSuite(e2e.EndToEndTestSuiteConfig{Kubeconfig: *kubeconfig, Namespace: *namespace, NodeName: *node}).Run(t)
}
