//go:build lab && soak

package e2e

import (
	"strings"
	"testing"
)

// rights compares docs/rights.md with what the API server says.
func (s *server) rights(t *testing.T, consumer, twin string) {
	t.Helper()
	// The account of the Job is there only while the release is removed.
	for hook := range strings.SplitSeq(s.helm(t, "get", "hooks", "kith"), "\n---\n") {
		args := []string{"apply", "-f", "-"}
		switch {
		case strings.Contains(hook, "\nkind: Job\n"):
			continue
		case !strings.Contains(hook, "\n  namespace: "):
			args = append(args, "-n", serverNamespace)
		}
		if _, err := s.at.KubectlInput(t.Context(), strings.NewReader(hook), args...); err != nil {
			t.Fatal(err, hook)
		}
	}
	accounts := "system:serviceaccount:" + serverNamespace + ":"
	in := func(list ...string) (others []particular) {
		for _, n := range list {
			others = append(others, particular{n, "`" + n + "`"})
		}
		return others
	}
	every := []string{accounts + "default"}
	rights(t, s.at,
		account{"kithd: ServiceAccount `kith`", []string{accounts + "kith"}, every, in(serverNamespace, "kube-node-lease", "kube-system")},
		account{"Every node: ServiceAccount `kith-nodes`", []string{accounts + "kith-nodes"}, every, in(serverNamespace)},
		account{"While the release is removed: ServiceAccount `kith-uninstall`", []string{accounts + "kith-uninstall"}, every, in(serverNamespace, "kube-node-lease")},
		consumerAccount(consumer, twin))
}
