//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestBudgetsOfHomeHoldWhereGuestsRun: what drains bob's node evicts as many of alice's pods as her disruption budget allows now, and
// no budget of hers holds bob up when he ends the contract.
func TestBudgetsOfHomeHoldWhereGuestsRun(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "500m", "--memory", "500Mi", "--pods", "10")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, strings.NewReplacer("heap", "guarded", "replicas: 1", "replicas: 2").Replace(heap))
	guests := waitReady(t, alice, 2, "-n", "shop", "-l", "app=guarded")
	for _, p := range guests {
		if p.Spec.NodeName != "kith-bob" {
			t.Fatalf("%s is on %s", p.Metadata.Name, p.Spec.NodeName)
		}
	}
	kubectl(t, alice, "-n", "shop", "create", "pdb", "guarded", "--selector=app=guarded", "--max-unavailable=0")
	twin := twinAt(t, bob, "shop")
	budget := func(want string) {
		t.Helper()
		eventually(t, 30*time.Second, "bob has a budget for guests: least, healthy, may go", func() string {
			out, err := bob.Kubectl(t.Context(), "-n", twin, "get", "pdb", "guarded", "-o", "jsonpath={.spec.minAvailable} {.status.currentHealthy} {.status.disruptionsAllowed}")
			if err != nil || out != want {
				return fmt.Sprintf("%s, want %s (%v)", out, want, err)
			}
			return ""
		})
	}
	evict := func(pod string) (string, error) {
		eviction := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"namespace":%q,"name":%q}}`, twin, pod)
		return bob.KubectlInput(t.Context(), strings.NewReader(eviction), "create", "--raw", "/api/v1/namespaces/"+twin+"/pods/"+pod+"/eviction", "-f", "-")
	}
	refused := func(pod string) {
		t.Helper()
		if out, err := evict(pod); err == nil || !strings.Contains(out+err.Error(), "would violate the pod's disruption budget") {
			t.Errorf("bob may evict %s: %s %v", pod, out, err)
		}
	}

	budget("2 2 0")
	t.Logf("at home\n%s\nat bob\n%s", kubectl(t, alice, "-n", "shop", "get", "pdb"), kubectl(t, bob, "-n", twin, "get", "pdb"))
	refused(guests[0].Metadata.Name)
	if out, err := bob.Kubectl(t.Context(), "drain", "bob", "--pod-selector=kith.dev/consumer-name=alice", "--delete-emptydir-data", "--timeout=5s"); err == nil {
		t.Errorf("bob is drained: %s", out)
	}
	kubectl(t, bob, "uncordon", "bob")

	kubectl(t, alice, "-n", "shop", "patch", "pdb", "guarded", "--type=merge", "-p", `{"spec":{"maxUnavailable":1}}`)
	budget("1 2 1")
	if out, err := evict(guests[0].Metadata.Name); err != nil {
		t.Errorf("bob may not evict one: %s %v", out, err)
	}
	refused(guests[1].Metadata.Name)
	eventually(t, time.Minute, "alice has two again", func() string {
		ready := 0
		for _, p := range pods(t, alice, "-n", "shop", "-l", "app=guarded") {
			if p.ready() {
				ready++
			}
		}
		if ready < 2 {
			return fmt.Sprint(ready)
		}
		return ""
	})

	kubectl(t, alice, "-n", "shop", "patch", "pdb", "guarded", "--type=merge", "-p", `{"spec":{"maxUnavailable":0}}`)
	eventually(t, 30*time.Second, "none may go", func() string {
		if out := kubectl(t, bob, "-n", twin, "get", "pdb", "guarded", "-o", "jsonpath={.status.disruptionsAllowed}"); out != "0" {
			return instead(out)
		}
		return ""
	})
	kith(t, bob, "unpeer", "alice", "--yes")
	eventually(t, 2*time.Minute, "nothing of alice's is left at bob", func() string {
		return kubectl(t, bob, "get", "namespaces", "-l", "kith.dev/home-namespace=shop", "-o", "jsonpath={.items[*].metadata.name}")
	})
}
