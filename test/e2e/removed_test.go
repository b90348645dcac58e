//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// preferred has one pod, at a node while there is one of that name.
const preferred = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 3
      affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [
        {weight: 100, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [kith-bob]}]}}]}}
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}},
         readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
`

// TestPeersAreToldGoodbyeByARemovedLaptop: a daemon that stops and starts, as it does in an upgrade or a reboot, leaves contracts and guests
// as they are; what a package calls before it is removed ends the peerings in both directions, and pods come home.
func TestPeersAreToldGoodbyeByARemovedLaptop(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	ask := []string{"--cpu", "300m", "--memory", "256Mi", "--pods", "10"}
	befriend(t, alice, bob, ask...)
	befriend(t, bob, alice, ask...)
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, preferred)
	there := waitReady(t, alice, 1, "-n", "shop", "-l", "app=web")[0]
	if there.Spec.NodeName != "kith-bob" {
		t.Fatalf("the pod is on %s", there.Spec.NodeName)
	}
	states := func() string {
		a, b := peerOf(t, alice, "bob"), peerOf(t, bob, "alice")
		return fmt.Sprintln(a.Outgoing, a.Incoming, b.Outgoing, b.Incoming)
	}

	if err := bob.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := bob.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "all is as before a restart", func() string {
		if is := states(); is != "connected connected connected connected\n" {
			return instead(is)
		}
		return ""
	})
	if again := waitReady(t, alice, 1, "-n", "shop", "-l", "app=web")[0]; again.Metadata.Name != there.Metadata.Name {
		t.Errorf("the pod was %s, is %s", there.Metadata.Name, again.Metadata.Name)
	}

	filled := teardown(t, bob)
	began := time.Now()
	out, errs, err := bob.Exec(t.Context(), "sh", "-c", filled, "teardown", "goodbye")
	if err != nil {
		t.Errorf("%v: %s%s", err, out, errs)
	}
	t.Logf("%s: %s", time.Since(began).Round(100*time.Millisecond), out)
	eventually(t, 20*time.Second, "no peering is left", func() string {
		if is := states(); is != "none none none none\n" {
			return instead(is)
		}
		return ""
	})
	eventually(t, time.Minute, "the pod is at home", func() string {
		for _, one := range pods(t, alice, "-n", "shop", "-l", "app=web") {
			if one.Spec.NodeName == "alice" && one.ready() {
				return ""
			}
		}
		return "not yet"
	})
	if left := strings.TrimSpace(kubectl(t, bob, "get", "namespaces", "-l", "kith.dev/home-namespace", "-o", "name")); left != "" {
		t.Errorf("bob has %s", left)
	}
}

// teardown is the script of the package, for the places where a laptop of the lab has its programs. kithd must run.
func teardown(t *testing.T, p *lab.Laptop) string {
	t.Helper()
	script, err := os.ReadFile("../../packaging/teardown.in")
	if err != nil {
		t.Fatal(err)
	}
	exe, _, err := p.Exec(t.Context(), "readlink", "/proc/"+pid(t, p, "kithd")+"/exe")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(strings.TrimSpace(exe))
	return strings.NewReplacer("@libexecdir@", bin, "@bindir@", bin).Replace(string(script))
}
