//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

// growingPair are alice, whose pods of namespace shop run at peers alone, and bob, who says yes by a policy.
func growingPair(t *testing.T) (alice, bob *lab.Laptop) {
	t.Helper()
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob = l.Laptop("alice"), l.Laptop("bob")
	for _, p := range l.Laptops() {
		eventually(t, 2*time.Minute, p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	awaitGuests(t, bob)
	eventually(t, time.Minute, "they see each other", func() string {
		if p := peerOf(t, alice, "bob"); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	kith(t, bob, "share", "50%", "--auto-accept")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop", "--strategy", "remote")
	return alice, bob
}

// seeks has alice ask bob, whose whole ID she names, for 100m, and for more while pods wait.
func seeks(t *testing.T, alice *lab.Laptop) {
	t.Helper()
	apply(t, alice, fmt.Sprintf(`
apiVersion: kith.dev/v1alpha1
kind: PeeringPolicy
metadata: {name: family}
spec:
  peers: [%s]
  amounts: {cpu: 100m, memory: 256Mi, pods: "10"}
  grow: {maxAmounts: {cpu: 500m}, giveBackAfter: 1m}
`, peerOf(t, alice, "bob").ID))
}

// hungry is a Deployment whose pods ask for 150m each.
func hungry(replicas int) string { return strings.Replace(web(replicas), "cpu: 10m", "cpu: 150m", 1) }

// grantedAt is how many processors the contract grants, as a laptop has it, and how the policy of alice's stands.
func grantedAt(t *testing.T, p *lab.Laptop) (cpu string) {
	t.Helper()
	return kubectl(t, p, "get", "contracts", "-o", "jsonpath={.items[*].spec.resources.cpu}")
}

func family(t *testing.T, alice *lab.Laptop) (is v1alpha1.PeeringPolicyStatus) {
	t.Helper()
	var policy v1alpha1.PeeringPolicy
	if err := json.Unmarshal([]byte(kubectl(t, alice, "get", "peeringpolicy", "family", "-o", "json")), &policy); err != nil {
		t.Fatal(err)
	}
	return policy.Status
}

// saidOf waits until all of these are reasons of events of alice's policy.
func saidOf(t *testing.T, alice *lab.Laptop, reasons ...string) {
	t.Helper()
	eventually(t, 30*time.Second, "events say so", func() string {
		got := kubectl(t, alice, "get", "events", "-A", "--field-selector", "involvedObject.kind=PeeringPolicy", "-o", "jsonpath={range .items[*]}{.reason} {.message}\n{end}")
		for _, reason := range reasons {
			if !strings.Contains(got, reason+" bob") {
				return "no " + reason + " in " + got
			}
		}
		return ""
	})
}

// TestRoomIsAskedForWithPodsThatWait: what pods that wait need is asked for with the first question of a PeeringPolicy.
func TestRoomIsAskedForWithPodsThatWait(t *testing.T) {
	alice, bob := growingPair(t)
	apply(t, alice, hungry(2))
	eventually(t, time.Minute, "kith why says that there is no peer", func() string {
		if out := kith(t, alice, "why", "-n", "shop", "deployment/web"); !strings.Contains(out, "no peer gives this laptop anything") {
			return out
		}
		return ""
	})
	seeks(t, alice)
	waitReady(t, alice, 2, "-n", "shop", "-l", "app=web")
	for _, p := range []*lab.Laptop{alice, bob} {
		if cpu := grantedAt(t, p); cpu != "300m" {
			t.Errorf("%s has a contract for cpu %q", p.Name(), cpu)
		}
	}
	saidOf(t, alice, "MoreAsked", "MoreGranted", "Contracted")
}
