//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestWhatAPolicyBoundsIsBoundForPeers has bob share by hours, on mains, with a reserve and for so many peers; alice asks, and bob's
// kith share explain says beforehand what she gets.
func TestWhatAPolicyBoundsIsBoundForPeers(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range l.Laptops() {
		eventually(t, 2*time.Minute, p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	eventually(t, time.Minute, "they see each other", func() string {
		if a, b := peerOf(t, alice, "bob"), peerOf(t, bob, "alice"); !a.Reachable || !b.Reachable {
			return fmt.Sprintf("%+v, %+v", a, b)
		}
		return ""
	})
	awaitGuests(t, bob)
	explain := func(t *testing.T) (o api.Offered) {
		t.Helper()
		if err := json.Unmarshal([]byte(kith(t, bob, "share", "explain", "alice", "-o", "json")), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	refused := func(t *testing.T, reason api.NoOffer, says string) {
		t.Helper()
		if o := explain(t); o.Reason != reason {
			t.Errorf("explained as %q, want %q: %+v", o.Reason, reason, o)
		}
		out, err := asking(t, alice, "peer", "bob", "--cpu", "100m", "--memory", "128Mi", "--pods", "2", "--timeout", "1m")
		if err == nil || !strings.Contains(out+err.Error(), says) {
			t.Errorf("alice hears %v %s, nothing of %q", err, out, says)
		}
	}
	at := func(from, to time.Duration) string {
		now := time.Now().UTC()
		return now.Add(from).Format("15:04") + "-" + now.Add(to).Format("15:04")
	}
	kith(t, bob, "share", "50%", "--hours", at(3*time.Hour, 5*time.Hour), "--time-zone", "UTC")
	t.Run("outside of its hours", func(t *testing.T) {
		refused(t, api.NoOfferClosed, "outside of the hours of SharingPolicy default, which begin")
		if o := explain(t); o.Opens.IsZero() || time.Until(o.Opens) > 3*time.Hour || time.Until(o.Opens) < 3*time.Hour-2*time.Minute {
			t.Errorf("it opens at %s", o.Opens)
		}
	})
	kith(t, bob, "share", "--hours", at(-2*time.Hour, 30*time.Minute))
	t.Run("when they end soon", func(t *testing.T) { refused(t, api.NoOfferCloses, "too soon for a contract") })
	kith(t, bob, "share", "--hours", at(-2*time.Hour, 5*time.Hour), "--reserve", "cpu=100%")
	t.Run("when all is reserved", func(t *testing.T) { refused(t, api.NoOfferNothingFree, "free") })
	kith(t, bob, "share", "--reserve", "cpu=10%", "--max-per-peer", "cpu=150m,pods=3", "--max-peers", "1", "--on-mains", "--notice", "20s")
	t.Run("within them", func(t *testing.T) {
		o := explain(t)
		if o.Reason != "" || len(o.Resources) == 0 || o.Resources[0].Name != "cpu" || o.Resources[0].Offered != "150m" || o.Resources[0].Bound != api.BoundByPerPeer || o.Closes.IsZero() {
			t.Fatalf("%+v", o)
		}
		befriend(t, alice, bob, "--cpu", "2", "--memory", "128Mi", "--pods", "2")
		var signed struct {
			Items []struct {
				Spec struct {
					NotAfter  time.Time
					Resources map[string]string
				}
			}
		}
		if err := json.Unmarshal([]byte(kubectl(t, bob, "get", "contracts", "-o", "json")), &signed); err != nil || len(signed.Items) != 1 {
			t.Fatal(err, signed)
		}
		is := signed.Items[0].Spec
		if is.Resources["cpu"] != "150m" || is.NotAfter.After(o.Closes) || o.Closes.Sub(is.NotAfter) > 11*time.Minute {
			t.Errorf("%+v, and the hours end %s", is, o.Closes)
		}
		if o := explain(t); o.Reason != "" || o.Has["cpu"] != "150m" || o.Peers != 0 || o.MaxPeers != 1 {
			t.Errorf("of who has a contract it is said %+v", o)
		}
	})
	t.Run("to people", func(t *testing.T) {
		out := kith(t, bob, "share", "explain", "alice")
		for _, want := range []string{"alice would be offered cpu 150m", "until the policy's hours end", "it has cpu 150m", "it is for everybody", "the most per peer", "150m"} {
			if !strings.Contains(out, want) {
				t.Errorf("want %q in\n%s", want, out)
			}
		}
		t.Log(out)
		t.Log(kith(t, bob, "share"))
	})
	t.Run("less, with notice", func(t *testing.T) { loweredWithNotice(t, alice, bob) })
	t.Run("without a tunnel", func(t *testing.T) { withoutTunnel(t, alice, bob) })
}

// loweredWithNotice has two pods of alice's run at bob, who shares less then: she is told, nothing changes before its time, and from then on one of the pods
// has no room there.
func loweredWithNotice(t *testing.T, alice, bob *lab.Laptop) {
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop", "--strategy", "remote")
	apply(t, alice, strings.Replace(web(2), "cpu: 10m", "cpu: 60m", 1))
	running := func(want int) {
		t.Helper()
		eventually(t, 2*time.Minute, fmt.Sprintf("%d pods run at bob", want), func() string {
			got := kubectl(t, alice, "get", "pods", "-n", "shop", "--field-selector", "spec.nodeName=kith-bob,status.phase=Running", "-o", "name")
			if n := len(strings.Fields(got)); n != want {
				return got
			}
			return ""
		})
	}
	running(2)
	kith(t, bob, "share", "--max-per-peer", "cpu=100m,pods=3")
	eventually(t, 10*time.Second, "alice is told", func() string {
		if out := kith(t, alice, "contract", "show", "bob"); !strings.Contains(out, "Lowered    to cpu 100m") {
			return out
		}
		return ""
	})
	t.Log(kith(t, alice, "contract", "show", "bob"))
	for _, p := range []*lab.Laptop{alice, bob} {
		if cpu := grantedAt(t, p); cpu != "150m" {
			t.Errorf("%s has %s granted before its time", p.Name(), cpu)
		}
	}
	running(2)
	eventually(t, time.Minute, "less is signed", func() string {
		if a, b := grantedAt(t, alice), grantedAt(t, bob); a != "100m" || b != "100m" {
			return a + " " + b
		}
		return ""
	})
	running(1)
	eventually(t, time.Minute, "alice's events say why", func() string {
		got := kubectl(t, alice, "get", "events", "-n", "shop", "-o", "jsonpath={range .items[*]}{.reason} {.message}\n{end}")
		if !strings.Contains(got, "NoLongerGranted") {
			return got
		}
		return ""
	})
	if waits := kubectl(t, alice, "get", "pods", "-n", "shop", "--field-selector", "status.phase=Pending", "-o", "name"); len(strings.Fields(waits)) != 1 {
		t.Errorf("another waits for room: %q", waits)
	}
	t.Log(kubectl(t, alice, "get", "pods", "-n", "shop", "-o", "wide"))
	t.Log(kith(t, bob, "contract", "show", "alice"))
}

// withoutTunnel has bob run a Job of alice's with no network between the two: it gets its ConfigMap and its Secret, its log comes, and neither side has a
// tunnel, or what only a tunnel is for.
func withoutTunnel(t *testing.T, alice, bob *lab.Laptop) {
	kith(t, alice, "unpeer", "bob", "--yes")
	for _, one := range []struct{ at, of *lab.Laptop }{{alice, bob}, {bob, alice}} {
		eventually(t, time.Minute, "nothing of the contract is left at "+one.at.Name(), func() string {
			return strings.TrimSpace(kubectl(t, one.at, "get", "contracts", "-o", "name"))
		})
	}
	kith(t, bob, "share", "50%", "--hours", "", "--reserve", "", "--max-per-peer", "", "--tunnel=false")
	apply(t, alice, `apiVersion: v1
kind: Namespace
metadata: {name: batch}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: input, namespace: batch}
data: {word: from-a-configmap}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: batch}
stringData: {word: from-a-secret}
---
apiVersion: v1
kind: Service
metadata: {name: jobs, namespace: batch}
spec: {selector: {job: sum}, ports: [{port: 80}]}
`)
	befriend(t, alice, bob, "--network", "none", "--cpu", "500m", "--memory", "256Mi", "--pods", "5")
	for _, side := range []*lab.Laptop{alice, bob} {
		if out := kith(t, side, "contract", "show", map[bool]string{true: "bob", false: "alice"}[side == alice]); !strings.Contains(out, "none between the clusters") {
			t.Errorf("%s is shown\n%s", side.Name(), out)
		}
	}

	kith(t, alice, "offload", "batch", "--strategy", "remote")
	job := func(name string) {
		apply(t, alice, fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: batch}
spec:
  template:
    metadata: {labels: {job: sum}}
    spec:
      restartPolicy: Never
      containers:
      - name: sum
        image: kith.dev/echo:1
        command: [/app, env, INPUT, KEY]
        env:
        - {name: INPUT, valueFrom: {configMapKeyRef: {name: input, key: word}}}
        - {name: KEY, valueFrom: {secretKeyRef: {name: key, key: word}}}
`, name))
	}
	job("early")
	eventually(t, 30*time.Second, "who did not say so stays away", func() string {
		if out := kubectl(t, alice, "-n", "batch", "get", "pods", "-l", "job-name=early", "-o", "jsonpath={.items[*].status.conditions[?(@.type=='PodScheduled')].message}"); !strings.Contains(out, "untolerated taint") {
			return out
		}
		return ""
	})
	kubectl(t, alice, "-n", "batch", "delete", "job", "early")
	kith(t, alice, "offload", "batch", "--strategy", "remote", "--network", "none")
	job("late")
	eventually(t, time.Minute, "the Job is done", func() string {
		if out := kubectl(t, alice, "-n", "batch", "get", "job", "late", "-o", "jsonpath={.status.succeeded}"); out != "1" {
			return kubectl(t, alice, "-n", "batch", "get", "pods", "-o", "wide") + kubectl(t, alice, "-n", "batch", "get", "events")
		}
		return ""
	})
	if out := kubectl(t, alice, "-n", "batch", "logs", "job/late"); !strings.Contains(out, "from-a-configmap") || !strings.Contains(out, "from-a-secret") {
		t.Errorf("its log is %q", out)
	}
	if out := kubectl(t, alice, "-n", "batch", "get", "pods", "-l", "job-name=late", "-o", "jsonpath={.items[*].spec.nodeName} {.items[*].status.podIP}"); strings.TrimSpace(out) != "kith-bob" {
		t.Errorf("it ran at %q", out)
	}
	if out := kubectl(t, bob, "get", "services,endpointslices", "-A", "-l", "app.kubernetes.io/managed-by=kith", "-o", "name"); strings.Contains(out, "jobs") {
		t.Errorf("bob has %s", out)
	}
	for _, one := range []struct{ at, of *lab.Laptop }{{alice, bob}, {bob, alice}} {
		p := peerOf(t, one.at, one.of.Name())
		key := kubectl(t, one.at, "get", "peer", one.of.Name(), "-o", "jsonpath={.status.network.publicKey}")
		if p.Network != api.NetworkNone || p.Tunnel.Up || !p.Tunnel.LastHandshake.IsZero() || key != "" {
			t.Errorf("at %s: network %q, key %q, tunnel %+v", one.at.Name(), p.Network, key, p.Tunnel)
		}
	}
	kith(t, alice, "unpeer", "bob", "--yes")
	eventually(t, time.Minute, "nothing is left", func() string {
		return strings.TrimSpace(kubectl(t, bob, "get", "contracts,namespaces", "-l", "kith.dev/consumer", "-o", "name") +
			kubectl(t, alice, "get", "contracts", "-o", "name") + kubectl(t, bob, "get", "peer", "alice", "-o", "jsonpath={.status.network}"))
	})
}
