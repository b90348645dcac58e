//go:build lab && soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestAMetricsServerOfTheOwnersOwnTakesOver: an ordinary metrics-server at home, with the rights it always has, answers in the
// place of the engine, and shows what pods and nodes use, virtual nodes and their pods too.
func TestAMetricsServerOfTheOwnersOwnTakesOver(t *testing.T) {
	program, err := filepath.Abs("../../build/metrics-server")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v; scripts/test.sh soak builds it", err)
	}
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, solo("here", "alice"))
	apply(t, alice, solo("there", "kith-bob"))
	manifest, err := os.ReadFile(filepath.Join("testdata", "metrics-server.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, alice, string(manifest))
	token := strings.TrimSpace(kubectl(t, alice, "-n", "kube-system", "create", "token", "metrics-server"))
	script := fmt.Sprintf(`set -e
		mkdir -p /tmp/metrics && cd /tmp/metrics
		kith-k8s kubectl config view --raw --flatten > kubeconfig
		kith-k8s kubectl --kubeconfig kubeconfig config unset users > /dev/null
		kith-k8s kubectl --kubeconfig kubeconfig config set-credentials metrics --token %q > /dev/null
		kith-k8s kubectl --kubeconfig kubeconfig config set-context --current --user metrics > /dev/null
		nohup %s --kubeconfig kubeconfig --authentication-kubeconfig kubeconfig --authorization-kubeconfig kubeconfig \
			--bind-address 10.42.255.1 --secure-port 4443 --cert-dir /tmp/metrics --metric-resolution 10s --kubelet-request-timeout 5s \
			--kubelet-use-node-status-port --kubelet-preferred-address-types InternalIP \
			--kubelet-certificate-authority /var/lib/kith/k8s/pki/ca.crt > log 2>&1 &`, token, program)
	if out, stderr, err := alice.Exec(t.Context(), "sh", "-c", script); err != nil {
		t.Fatalf("start the metrics-server: %v\n%s%s", err, out, stderr)
	}
	t.Cleanup(func() {
		if out, _, _ := alice.Exec(context.WithoutCancel(t.Context()), "tail", "-n", "20", "/tmp/metrics/log"); t.Failed() {
			t.Logf("metrics-server:\n%s", out)
		}
	})
	waitReady(t, alice, 2, "-n", "shop")
	shows := func(what string, args ...string) {
		t.Helper()
		var out string
		eventually(t, 3*time.Minute, "kubectl top shows "+what, func() string {
			out, _ = alice.Kubectl(t.Context(), append([]string{"top"}, args...)...)
			if !regexp.MustCompile(`(?m)^` + what + `\s+[0-9]+m\s.*\b[0-9]+Mi`).MatchString(out) {
				return instead(out)
			}
			return ""
		})
		t.Logf("kubectl top %s\n%s", strings.Join(args, " "), out)
	}
	eventually(t, time.Minute, "it answers, and not the engine", func() string {
		out, _ := alice.Kubectl(t.Context(), "get", "apiservice", "v1beta1.metrics.k8s.io", "-o",
			`jsonpath={.spec.service.name} {.status.conditions[?(@.type=="Available")].status}`)
		if out != "metrics-server True" {
			return instead(out)
		}
		return ""
	})
	shows("there", "pod", "-n", "shop")
	shows("here", "pod", "-n", "shop")
	shows("kith-bob", "node")
	shows("alice", "node")
}
