//go:build lab

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

const dualWeb = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: app, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}}}]
---
apiVersion: v1
kind: Service
metadata: {name: both, namespace: shop}
spec: {ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: six, namespace: shop}
spec: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv6], type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30086}]}
`

// TestPeersOfBothFamilies: two laptops whose pods have both families share an application. Guests have an IPv6 address of the pair's range, reach home's
// pods and services by it and are reached from home, and nothing else.
func TestPeersOfBothFamilies(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, LAN: lab.DualStack, Config: map[string]any{"ipv6": true}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "400m", "--memory", "256Mi", "--pods", "10")
	apply(t, alice, dualWeb)
	kith(t, alice, "offload", "shop")
	apply(t, alice, solo("home", "alice")+"---"+solo("away", "kith-bob"))
	apply(t, bob, "apiVersion: v1\nkind: Namespace\nmetadata: {name: own}\n---"+strings.ReplaceAll(solo("desk", "bob"), "namespace: shop", "namespace: own"))
	waitReady(t, alice, 4, "-n", "shop")
	waitReady(t, bob, 1, "-n", "own")
	six := func(p *lab.Laptop, namespace, pod string) netip.Addr {
		t.Helper()
		var a netip.Addr
		eventually(t, 20*time.Second, pod+" has an IPv6 address", func() string {
			out, err := p.Kubectl(t.Context(), "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.status.podIPs[1].ip}")
			if a, _ = netip.ParseAddr(out); err != nil || !a.Is6() {
				return fmt.Sprint(out, err)
			}
			return ""
		})
		return a
	}
	home, away, desk := six(alice, "shop", "home"), six(alice, "shop", "away"), six(bob, "own", "desk")
	t.Logf("home %s, away %s, bob's own %s", home, away, desk)
	t.Log(kubectl(t, alice, "get", "peer", "bob", "-o", "jsonpath={.status.network}"))
	reach := func(from, url, client string) {
		t.Helper()
		eventually(t, 30*time.Second, from+" reaches "+url, func() string {
			out, err := alice.Kubectl(t.Context(), "-n", "shop", "exec", from, "--", "/app", "get", url)
			if err != nil || !strings.Contains(out, `"client": "`+client) {
				return fmt.Sprint(out, err)
			}
			return ""
		})
	}
	reach("home", "http://["+away.String()+"]:8080/", "["+home.String()+"]:")
	reach("away", "http://["+home.String()+"]:8080/", "["+away.String()+"]:")
	for _, url := range []string{"http://six/", "http://both/", "http://[" + kubectl(t, alice, "-n", "shop", "get", "service", "six", "-o", "jsonpath={.spec.clusterIP}") + "]/"} {
		reach("away", url, "")
		reach("home", url, "")
	}
	// Neither the owner's pod, nor the host, by any of its addresses.
	closed := []string{"http://[" + desk.String() + "]:8080/"}
	for line := range strings.Lines(func() string {
		out, _, err := bob.Exec(t.Context(), "sh", "-c", "ip -6 -o addr show scope global | awk '{print $4}' | cut -d/ -f1")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}()) {
		closed = append(closed, "https://["+strings.TrimSpace(line)+"]:10250/", "https://["+strings.TrimSpace(line)+"]:6450/")
	}
	for _, url := range closed {
		if out, err := alice.Kubectl(t.Context(), "-n", "shop", "exec", "away", "--", "/app", "get", url); err == nil || strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "HTTP") {
			t.Errorf("a guest reaches %s: %s %v", url, out, err)
		}
	}
	kubectlAbroad(t, alice, "away")
	well(t, alice)
	well(t, bob)
}
