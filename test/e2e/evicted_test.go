//go:build lab

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// heap is a Deployment that prefers bob, with a volume of a megabyte.
const heap = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: heap, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: heap}}
  template:
    metadata: {labels: {app: heap}}
    spec:
      terminationGracePeriodSeconds: 1
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - {weight: 100, preference: {matchExpressions: [{key: kith.dev/virtual, operator: Exists}]}}
      volumes: [{name: heap, emptyDir: {sizeLimit: 1Mi}}]
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, volumeMounts: [{name: heap, mountPath: /heap}],
         resources: {requests: {cpu: 10m, memory: 16Mi}}, readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
`

// endOf tells how a pod of shop fares at home: phase, reason, message, and the reason of the condition DisruptionTarget.
func endOf(t *testing.T, p *lab.Laptop, pod string) string {
	out, err := p.Kubectl(t.Context(), "-n", "shop", "get", "pod", pod, "-o",
		`jsonpath={.status.phase} {.status.reason}: {.status.message} [{.status.conditions[?(@.type=="DisruptionTarget")].reason}]`)
	if err != nil {
		return fmt.Sprint("error: ", out)
	}
	return out
}

// evictedAbroad: what bob's kubelet evicts, and what bob drains, is evicted at home: there it has failed and says why, its Deployment
// makes another, and a bare pod stays as it is. silent is a bare pod at bob.
func evictedAbroad(t *testing.T, alice, bob *lab.Laptop, twin string) {
	apply(t, alice, heap)
	first := waitReady(t, alice, 1, "-n", "shop", "-l", "app=heap")[0]
	if first.Spec.NodeName != "kith-bob" {
		t.Fatalf("heap is on %s", first.Spec.NodeName)
	}
	ready := func(node string) string {
		for _, p := range pods(t, alice, "-n", "shop", "-l", "app=heap") {
			if p.ready() && p.Spec.NodeName == node {
				return p.Metadata.Name
			}
		}
		return ""
	}
	for pod, file := range map[string][]string{"silent": {"/much", "200"}, first.Metadata.Name: {"/heap/much", "5"}} { // a tenth of the contract's is a pod's part
		if out, err := bob.Kubectl(t.Context(), append([]string{"-n", twin, "exec", pod, "--", "/app", "spill"}, file...)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for pod, why := range map[string]string{"silent": "local storage usage exceeds", first.Metadata.Name: `EmptyDir volume "heap" exceeds the limit "1Mi"`} {
		took := eventually(t, 2*time.Minute, pod+" is evicted at home, and says why", func() string {
			if got := endOf(t, alice, pod); !strings.HasPrefix(got, "Failed Evicted: ") || !strings.Contains(got, why) {
				return instead(got)
			}
			events := kubectl(t, alice, "-n", "shop", "get", "events", "--field-selector", "involvedObject.name="+pod+",reason=Evicted", "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(events, why) {
				return "events: " + events
			}
			return ""
		})
		t.Logf("%s: %s after %s", pod, endOf(t, alice, pod), took.Round(time.Second))
	}
	second := ""
	eventually(t, time.Minute, "heap has another pod at bob", func() string {
		if second = ready("kith-bob"); second == "" {
			return "none is Ready there"
		}
		return ""
	})
	for _, pod := range []string{"silent", first.Metadata.Name} {
		if got := kubectl(t, bob, "-n", twin, "get", "offloadedpod", pod, "-o", "jsonpath={.status.phase} {.status.remade}"); strings.TrimSpace(got) != "Failed" {
			t.Errorf("at bob %s is %s", pod, got)
		}
	}

	began := time.Now()
	kubectl(t, bob, "drain", "bob", "--pod-selector=kith.dev/consumer-name=alice", "--delete-emptydir-data", "--timeout=3m")
	defer kubectl(t, bob, "uncordon", "bob")
	eventually(t, time.Minute, "the drained pod is evicted at home", func() string {
		if got := endOf(t, alice, second); !strings.HasPrefix(got, "Failed Evicted: ") || !strings.HasSuffix(got, "[EvictionByEvictionAPI]") {
			return instead(got)
		}
		return ""
	})
	eventually(t, time.Minute, "its Deployment has another elsewhere", func() string {
		if ready("alice") == "" {
			return kubectl(t, alice, "-n", "shop", "get", "pods", "-o", "wide")
		}
		return ""
	})
	t.Logf("drained, and replaced after %s: %s", time.Since(began).Round(100*time.Millisecond), endOf(t, alice, second))
	closed := func() string {
		return kubectl(t, alice, "get", "node", "kith-bob", "-o", `jsonpath={.spec.taints[?(@.key=="kith.dev/closed")].value}`)
	}
	if got := closed(); got != "cordoned" {
		t.Errorf("bob takes no pods, and his node is closed: %q", got)
	}
	kubectl(t, bob, "uncordon", "bob")
	eventually(t, 20*time.Second, "bob's node is open again", closed)
	kubectl(t, alice, "-n", "shop", "delete", "deployment/heap", "pod/silent")
}

// budgetsHold: a namespace is brought home as its disruption budgets allow, and kith says which does not.
func budgetsHold(t *testing.T, alice *lab.Laptop) {
	apply(t, alice, strings.NewReplacer("heap", "guarded", "replicas: 1", "replicas: 2").Replace(heap))
	kubectl(t, alice, "-n", "shop", "create", "pdb", "guarded", "--selector=app=guarded", "--min-available=2")
	places := func() string {
		var at []string
		for _, p := range pods(t, alice, "-n", "shop", "-l", "app=guarded") {
			if p.ready() {
				at = append(at, p.Spec.NodeName)
			}
		}
		return strings.Join(at, " ")
	}
	is := func(want string) {
		t.Helper()
		eventually(t, time.Minute, "its pods are at "+want, func() string {
			if got := places(); got != want {
				return instead(got)
			}
			return ""
		})
	}
	is("kith-bob kith-bob")
	eventually(t, 20*time.Second, "the budget knows them", func() string {
		if got := kubectl(t, alice, "-n", "shop", "get", "pdb", "guarded", "-o", "jsonpath={.status.currentHealthy}"); got != "2" {
			return instead(got)
		}
		return ""
	})
	out, err := alice.Kith(t.Context(), "unoffload", "shop", "--timeout", "3s")
	if err == nil {
		t.Fatalf("they are home: %s", out)
	}
	for _, says := range []string{"The disruption budget guarded needs 2 healthy pods and has 2 currently", "kith unoffload shop --force"} {
		if !strings.Contains(out+err.Error(), says) {
			t.Errorf("kith unoffload does not say %q: %s %v", says, out, err)
		}
	}
	if got := places(); got != "kith-bob kith-bob" {
		t.Errorf("held, they are at %q", got)
	}
	if got := kubectl(t, alice, "-n", "shop", "get", "nso", "offloading", "-o", `jsonpath={.status.conditions[?(@.type=="PodsEvicted")].message}`); !strings.Contains(got, "budget guarded") {
		t.Errorf("the NamespaceOffloading says %q", got)
	}
	kubectl(t, alice, "-n", "shop", "patch", "pdb", "guarded", "--type=merge", "-p", `{"spec":{"minAvailable":1}}`)
	began := time.Now()
	kith(t, alice, "unoffload", "shop")
	t.Logf("one after the other they were home after %s", time.Since(began).Round(100*time.Millisecond))
	is("alice alice")
}
