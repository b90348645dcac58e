//go:build lab && soak

package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// mostlyConformant is how many of upstream's Conformance tests of the network pass with their pods in somebody else's cluster; docs/conformance.md
// says why the others do not.
const mostlyConformant = 43

// TestUpstreamsNetworkTestsInAForeignCluster runs them at alice, with every pod on a node of a cluster that flannel gives addresses. What they leave is
// for test/conformance/report. `scripts/conformance.sh foreign` builds what it needs, and runs it; FOCUS has it run those that match alone.
func TestUpstreamsNetworkTestsInAForeignCluster(t *testing.T) {
	root, err := filepath.Abs("../..")
	must(t, err)
	built, focus := filepath.Join(root, "build/conformance"), os.Getenv("FOCUS")
	if _, err := os.Stat(filepath.Join(built, "images.tar")); err != nil {
		t.Skip("scripts/conformance.sh foreign builds the tests, and runs this")
	}
	f := foreignCluster(t, []string{kithImage(t), filepath.Join(built, "images.tar")}, "alice")
	alice, s := f.l.Laptop("alice"), &server{at: f.one}
	for _, name := range []string{"e2e.test", "ginkgo"} {
		program, err := os.ReadFile(filepath.Join(built, name))
		must(t, err)
		must(t, os.WriteFile(alice.Path("/var/lib/"+name), program, 0o755))
	}
	s.carry(t)
	s.install(t, "replicas=1")
	me := regexp.MustCompile(`"id": *"([A-Z0-9-]+)"`).FindStringSubmatch(kith(t, alice, "status", "-o", "json"))[1]
	s.kith(t, "share", "--policy", "alice", "--to", me, "--cpu", "4", "--memory", "6Gi", "--pods", "110", "--auto-accept")
	kubectl(t, s.at, "patch", "sharingpolicy", "alice", "--type=merge", "-p", `{"spec":{"images":{"present":["registry.k8s.io/*","kith.dev/*"]}}}`)
	kith(t, alice, "peer", s.id(t), "--cpu", "4", "--memory", "6Gi", "--pods", "110", "--timeout", "3m")
	pin, err := os.ReadFile(filepath.Join(root, "test/conformance/pin.yaml"))
	must(t, err)
	apply(t, alice, string(pin))
	kubectl(t, alice, "cordon", "alice")
	eventually(t, time.Minute, "the node has no taint of a peer's", func() string {
		_, _ = alice.Kubectl(t.Context(), "taint", "node", "kith-corp", "kith.dev/peer-")
		if out := kubectl(t, alice, "get", "node", "kith-corp", "-o", "jsonpath={.spec.taints}"); strings.Contains(out, "kith.dev/peer") {
			return out
		}
		return ""
	})
	out, log := foreignRun(t, alice, focus)
	results := filepath.Join(built, "results/foreign")
	must(t, os.RemoveAll(results))
	must(t, os.CopyFS(results, os.DirFS(alice.Path("/var/lib/results"))))
	must(t, os.WriteFile(filepath.Join(results, "1.log"), []byte(log), 0o644))
	t.Log(out)
	passed := regexp.MustCompile(`(\d+) Passed`).FindStringSubmatch(log)
	if passed == nil {
		t.Fatalf("no result: %s", log[max(0, len(log)-2000):])
	}
	if n, err := strconv.Atoi(passed[1]); err != nil || focus == "" && n < mostlyConformant {
		t.Errorf("%s passed, want %d", passed[1], mostlyConformant)
	}
}

// foreignRun gives the lines of tests, and the whole log.
func foreignRun(t *testing.T, alice *lab.Laptop, focus string) (lines, log string) {
	t.Helper()
	script := `ln -sf "$(command -v kith-k8s)" /var/lib/kubectl; mkdir -p /var/lib/results/1
/var/lib/ginkgo run --procs=6 --timeout=2h --no-color --silence-skips --label-filter='Conformance && sig-network && Feature: isEmpty && !Disruptive' --focus="$1" /var/lib/e2e.test -- \
  --kubeconfig=` + lab.Kubeconfig + ` --kubectl-path=/var/lib/kubectl --provider=skeleton --disable-log-dump --report-dir=/var/lib/results/1 2>&1 || true`
	log, stderr, err := alice.Exec(t.Context(), "sh", "-c", script, "sh", focus)
	if err != nil {
		t.Fatal(err, stderr)
	}
	for line := range strings.Lines(log) {
		if regexp.MustCompile(`^(Will run|Ran |\s*\[FAIL\])`).MatchString(line) {
			lines += line
		}
	}
	return lines, log
}
