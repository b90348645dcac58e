//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// homeRules: what home's LimitRange gives to a pod, and what its ResourceQuota counts, holds for one at bob; neither is there.
func homeRules(t *testing.T, alice, bob *lab.Laptop) {
	kubectl(t, alice, "create", "namespace", "ruled")
	kith(t, alice, "offload", "ruled")
	apply(t, alice, `
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: ruled}
spec:
  limits: [{type: Container, defaultRequest: {cpu: 15m, memory: 24Mi}, default: {cpu: 200m, memory: 48Mi}, max: {cpu: 500m, memory: 64Mi}}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: most, namespace: ruled}
spec: {hard: {pods: "1", requests.cpu: 100m, limits.memory: 64Mi}}
`)
	silent := func(name string) string {
		return strings.Replace(place(name, "ruled", "kith-bob"), " resources: {requests: {cpu: 10m, memory: 16Mi}},", "", 1)
	}
	refused := func(manifest, why string) {
		t.Helper()
		if out, err := alice.KubectlInput(t.Context(), strings.NewReader(manifest), "create", "-f", "-"); err == nil || !strings.Contains(out+err.Error(), why) {
			t.Errorf("%s, %v: want %s", out, err, why)
		}
	}
	refused(strings.Replace(place("large", "ruled", "kith-bob"), "requests: {cpu: 10m, memory: 16Mi}", "limits: {memory: 100Mi}", 1), "maximum memory usage per Container is 64Mi")
	apply(t, alice, silent("one"))
	waitReady(t, alice, 1, "-n", "ruled")
	refused(silent("two"), "exceeded quota: most")
	if used := kubectl(t, alice, "-n", "ruled", "get", "resourcequota", "most", "-o", "jsonpath={.status.used.pods} {.status.used.requests\\.cpu} {.status.used.limits\\.memory}"); used != "1 15m 48Mi" {
		t.Errorf("home counts %s", used)
	}
	twin := twinAt(t, bob, "ruled")
	amounts := func(p *lab.Laptop, namespace string) (r struct{ Requests, Limits map[string]string }) {
		t.Helper()
		if err := json.Unmarshal([]byte(kubectl(t, p, "-n", namespace, "get", "pod", "one", "-o", "jsonpath={.spec.containers[0].resources}")), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	here, there := amounts(alice, "ruled"), amounts(bob, twin)
	for _, name := range []string{"cpu", "memory"} {
		if here.Requests[name] != there.Requests[name] || here.Limits[name] != there.Limits[name] || here.Requests[name] == "" || here.Limits[name] == "" {
			t.Errorf("%s is %v at home, %v at bob", name, here, there)
		}
	}
	if out := kubectl(t, bob, "-n", twin, "get", "limitranges,resourcequotas", "-o", "jsonpath={.items[*].metadata.name}"); strings.Contains(out, "most") || strings.Contains(out, "defaults") {
		t.Errorf("bob has %s", out)
	}
	kubectl(t, alice, "delete", "namespace", "ruled")
}

// ingressAtHome: an Ingress stays at home, and so does its controller, which reaches pods at bob as it reaches those at home: by the service's address, or
// by the addresses in its EndpointSlices, as most do. in runs a program in a pod of home's, in the controller's place.
func ingressAtHome(t *testing.T, alice, bob *lab.Laptop, in func(args ...string) (string, error)) {
	apply(t, alice, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  defaultBackend: {service: {name: web, port: {number: 80}}}
`)
	reached := map[string]string{} // by the pod's name, the node
	for _, p := range pods(t, alice, "-n", "shop", "-l", "app=web") {
		reached[p.Metadata.Name] = p.Spec.NodeName
	}
	var slices struct {
		Items []struct {
			Ports []struct {
				Name string
				Port int
			}
			Endpoints []struct {
				Addresses []string
				TargetRef struct{ Name string }
			}
		}
	}
	if err := json.Unmarshal([]byte(kubectl(t, alice, "-n", "shop", "get", "endpointslices", "-l", "kubernetes.io/service-name=web", "-o", "json")), &slices); err != nil {
		t.Fatal(err)
	}
	asked, abroad := 0, 0
	for _, s := range slices.Items {
		port := 0
		for _, p := range s.Ports {
			if p.Name == "http" {
				port = p.Port
			}
		}
		for _, e := range s.Endpoints {
			at := fmt.Sprintf("http://%s:%d/", e.Addresses[0], port)
			if out, err := in("/app", "get", at); err != nil || !strings.Contains(out, e.TargetRef.Name) {
				t.Errorf("%s, of %s at %s: %s, %v", at, e.TargetRef.Name, reached[e.TargetRef.Name], out, err)
			}
			if asked++; reached[e.TargetRef.Name] == "kith-bob" {
				abroad++
			}
		}
	}
	if asked != 4 || abroad == 0 {
		t.Errorf("of %d endpoints %d are at bob", asked, abroad)
	}
	if out := kubectl(t, bob, "get", "ingresses", "-A", "-o", "name"); out != "" {
		t.Errorf("bob has %s", out)
	}
	kubectl(t, alice, "-n", "shop", "delete", "ingress", "web")
}

// refusedByName: a pod that asks for what only home has does not go, or is told what it does not get.
func refusedByName(t *testing.T, alice *lab.Laptop) {
	kubectl(t, alice, "create", "namespace", "devices")
	kith(t, alice, "offload", "devices")
	claim := "  resourceClaims: [{name: gpu, resourceClaimName: gpu}]\n  containers:"
	sandboxed := strings.Replace(place("sandboxed", "devices", "kith-bob"), "spec:\n", "spec:\n  runtimeClassName: sandbox\n", 1)
	apply(t, alice, `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sandbox}
handler: sandbox
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu, namespace: devices}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu.example.com}}]}}
`+strings.Replace(place("asks", "devices", "kith-bob"), "  containers:", claim, 1)+sandboxed)
	named := strings.Replace(place("named", "devices", "kith-bob"), "  containers:", claim, 1)
	apply(t, alice, strings.Replace(named, "nodeSelector: {kubernetes.io/hostname: kith-bob}", "nodeName: kith-bob", 1))
	for pod, says := range map[string][]string{
		"asks":      {"BoundToHome", "spec.resourceClaims[0] (gpu) stands for devices of home's nodes"},
		"named":     {"NotSupported", "bob refuses: spec.resourceClaims[0] (gpu): resource claims are not available at a peer"},
		"sandboxed": {"RuntimeClassLeftOut", "RuntimeClass sandbox is home's: bob runs the pod"},
	} {
		eventually(t, 30*time.Second, "an event of "+pod+" says why", func() string {
			out := kubectl(t, alice, "-n", "devices", "get", "events", "--field-selector", "involvedObject.name="+pod+",reason="+says[0], "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(out, says[1]) {
				return instead(out)
			}
			return ""
		})
	}
	waitReady(t, alice, 1, "-n", "devices", "-l", "app=sandboxed")
	if is := kubectl(t, alice, "-n", "devices", "get", "pod", "named", "-o", "jsonpath={.status.phase} {.status.reason}"); is != "Pending NotSupported" {
		t.Errorf("a pod with a claim that names its node is %s", is)
	}
	if node := kubectl(t, alice, "-n", "devices", "get", "pod", "asks", "-o", "jsonpath={.spec.nodeName}"); node != "" {
		t.Errorf("a pod with a claim is on %s", node)
	}
	if out := kith(t, alice, "why", "devices/asks"); !strings.Contains(out, "it has a resource claim (gpu)") {
		t.Error(out)
	}
	kubectl(t, alice, "delete", "namespace", "devices")
	kubectl(t, alice, "delete", "runtimeclass", "sandbox")
}
