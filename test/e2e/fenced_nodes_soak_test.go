//go:build lab && soak

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestGuestsRunWhereTheFenceIs: kithd attached to a cluster of two nodes on one of them. The offer counts that node alone, guests run there
// alone, and status and doctor say that the other is left out, and what would bring a fence there.
func TestGuestsRunWhereTheFenceIs(t *testing.T) {
	l := laptops(t, lab.Options{Names: []string{"alice"}, Clusters: []lab.Cluster{{Name: "corp", Nodes: 2}}})
	alice, corp := l.Laptop("alice"), l.Laptop("corp-1")
	eventually(t, time.Minute, "both nodes are Ready", func() string {
		out, err := corp.Kubectl(t.Context(), "get", "nodes", "--no-headers")
		if err != nil || strings.Count(out, " Ready ") != 2 {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	start := fmt.Sprintf(`mkdir -p /etc/kith; printf 'name: corp\nengine: kubeconfig\nkubeconfig: %s\nnodeName: corp-1\npodRange: 10.42.0.0/16\nfrontDoorPort: 0\n' >/etc/kith/config.yaml
setsid kithd >/var/lib/kith/kithd-test.log 2>&1 </dev/null &
echo $! >/var/lib/kith/kithd-test.pid`, lab.Kubeconfig)
	if _, stderr, err := corp.Exec(t.Context(), "sh", "-ec", start); err != nil {
		t.Fatal(err, stderr)
	}
	eventually(t, time.Minute, "kithd attached", func() string { return engineReady(t, corp) })
	kith(t, corp, "share", "50%", "--auto-accept")
	kubectl(t, corp, "patch", "sharingpolicy", "default", "--type=merge", "-p", `{"spec":{"images":{"present":["kith.dev/*"]}}}`)
	eventually(t, 30*time.Second, "one node takes guests", func() string {
		return kubectlUntil(t, corp, "node/corp-1", "get", "nodes", "-l", "kith.dev/fenced=true", "-o", "name")
	})
	cpus := func(node string) int {
		var n int
		if _, err := fmt.Sscan(kubectl(t, corp, "get", "node", node, "-o", "jsonpath={.status.allocatable.cpu}"), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var status api.Status
	if err := json.Unmarshal([]byte(kith(t, corp, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	if got, want := status.Sharing.Amounts["cpu"], map[bool]string{true: fmt.Sprint(cpus("corp-1") / 2), false: fmt.Sprintf("%dm", cpus("corp-1")*500)}[cpus("corp-1")%2 == 0]; got != want {
		t.Errorf("half of it is %s cpu, want %s of corp-1's alone", got, want)
	}
	if !slices.ContainsFunc(status.Problems, func(p api.Problem) bool {
		return strings.Contains(p.What, "corp-2") && strings.Contains(p.Do, "Helm chart")
	}) {
		t.Errorf("status does not say that corp-2 is left out: %+v", status.Problems)
	}
	found, _ := examine(t, corp)
	if !slices.ContainsFunc(found, func(f api.Finding) bool {
		return f.Name == "fenced" && f.State == api.CheckWarning && strings.Contains(f.What, "corp-2") && strings.Contains(f.Do, "Helm chart")
	}) {
		t.Errorf("the doctor does not say that corp-2 is left out:\n%s", strings.Join(notOK(found), "\n"))
	}

	kith(t, alice, "peer", status.ID, "--cpu", "500m", "--memory", "256Mi", "--pods", "8", "--timeout", "3m")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop", "--strategy", "remote")
	if _, err := alice.KubectlInput(t.Context(), strings.NewReader(fmt.Sprintf(fourGuests, 4)), "-n", "shop", "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	waitReady(t, alice, 4, "-n", "shop", "-l", "app=web")
	twin := twinAt(t, corp, "shop")
	for _, p := range pods(t, corp, "-n", twin, "-l", "app=web") {
		if p.Spec.NodeName != "corp-1" {
			t.Errorf("guest %s is on %s, where nothing fences it", p.Metadata.Name, p.Spec.NodeName)
		}
	}

	// Somebody else's word counts nothing, and without the node that has a fence nothing starts.
	kubectl(t, corp, "label", "node", "corp-2", "kith.dev/fenced=true")
	eventually(t, 20*time.Second, "a label that somebody else set is taken off", func() string {
		return kubectlUntil(t, corp, "node/corp-1", "get", "nodes", "-l", "kith.dev/fenced=true", "-o", "name")
	})
}

// fourGuests are pods of a consumer.
const fourGuests = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent}]
`
