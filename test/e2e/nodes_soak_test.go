//go:build lab && soak

package e2e

import (
	"slices"
	"testing"

	"kith.dev/test/lab"
)

func init() {
	troubles = []officeStep{
		{"a restart ends no pod", (*office).restarts},
		{"a node loses power and comes back", (*office).power},
		{"so does the server", (*office).serverPower},
		{"a node is drained", (*office).drain},
		{"a node is deleted, and joins again", (*office).deleted},
	}
}

// TestAClusterOfThreeNodes: a small office, without kithd: a server and two nodes that joined it by a token.
func TestAClusterOfThreeNodes(t *testing.T) {
	l := laptops(t, lab.Options{Clusters: []lab.Cluster{{Name: "corp", Nodes: 3}}})
	c := &office{l: l, server: l.Laptop("corp-1")}
	apply(t, c.server, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---"+eachNode+"---"+web(2))
	waitReady(t, c.server, 5, "-n", "shop")
	for _, step := range slices.Concat([]officeStep{
		{"each pod reaches each other one, the service and DNS", (*office).reach},
		{"logs, exec, port-forward and top work on each node", (*office).kubelets},
		{"a volume is where its pod is", (*office).volumes},
		{"a NetworkPolicy holds on every node", (*office).policies},
		{"strangers get nothing", (*office).strangers},
		{"a node's key opens nothing of others", (*office).aNodesKey},
		{"each account may what its page says", (*office).rights},
	}, troubles) {
		t.Run(step.name, func(t *testing.T) { step.do(c, t) })
	}
}
