//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// way is from a pod of shop to an address, and whether it should be open.
type way struct {
	from, to string
	open     bool
}

// policies: a NetworkPolicy of alice's holds for her pods at home and for those at bob's.
func (w *fenced) policies(t *testing.T) {
	at := func(name string) string {
		return kubectl(t, w.alice, "-n", "shop", "get", "pod", name, "-o", "jsonpath={.status.podIP}") + ":8080"
	}
	desk, guest := at("desk"), at("guest")
	apply(t, w.alice, place("lamp", "shop", "alice")+"---"+twice("nib", desk))
	kubectl(t, w.alice, "-n", "shop", "create", "service", "clusterip", "desk", "--tcp=80:8080")
	waitReady(t, w.alice, 4, "-n", "shop", "-l", "app in (desk,lamp,guest,next)")
	kubectl(t, w.alice, "-n", "shop", "wait", "--for=condition=complete", "job/nib", "--timeout=3m") // it reaches desk while nothing forbids it
	kubectl(t, w.alice, "-n", "shop", "delete", "job", "nib")
	service := kubectl(t, w.alice, "-n", "shop", "get", "service", "desk", "-o", "jsonpath={.spec.clusterIP}") + ":80"
	open := []way{
		{"lamp", desk, true}, {"lamp", guest, true}, {"desk", guest, true},
		{"guest", w.desk + ":8080", true}, {"guest", service, true}, {"guest", w.next + ":8080", true}, {"guest", w.online, true},
		{"next", w.desk + ":8080", true}, {"next", w.guest + ":8080", true}, {"next", w.online, true},
	}
	w.ways(t, "without policies", open...)

	apply(t, w.alice, policy("desk", "desk", "Ingress", `ingress: []`))
	w.ways(t, "desk gets nothing", way{"lamp", desk, false}, way{"guest", w.desk + ":8080", false}, way{"guest", service, false}, way{"next", w.desk + ":8080", false}, way{"desk", guest, true})
	if out := kubectl(t, w.alice, "-n", "shop", "get", "pod", "desk", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); out != "True" {
		t.Errorf("the kubelet does not reach desk: %s", out)
	}

	apply(t, w.alice, policy("desk", "desk", "Ingress", `ingress: [{from: [{podSelector: {matchLabels: {app: guest}}}], ports: [{port: 8080}]}]`))
	w.ways(t, "desk gets what guest sends", way{"lamp", desk, false}, way{"guest", w.desk + ":8080", true}, way{"guest", service, true}, way{"next", w.desk + ":8080", false})

	apply(t, w.alice, policy("guest", "guest", "Ingress, Egress", `ingress: [{from: [{podSelector: {matchLabels: {app: desk}}}]}], egress: [{to: [{podSelector: {matchLabels: {app: desk}}}]}]`))
	w.ways(t, "guest meets desk alone",
		way{"lamp", guest, false}, way{"desk", guest, true}, way{"next", w.guest + ":8080", false},
		way{"guest", w.desk + ":8080", true}, way{"guest", w.next + ":8080", false}, way{"guest", w.online, false}, way{"next", w.online, true})

	t.Run("none starts before its rules", func(t *testing.T) {
		apply(t, w.alice, policy("nib", "nib", "Egress", `egress: []`)+"---"+twice("nib", desk))
		var ended string
		eventually(t, 60*time.Second, "they have tried", func() string {
			ended = kubectl(t, w.alice, "-n", "shop", "get", "job", "nib", "-o", "jsonpath={.status.conditions[?(@.status==\"True\")].type}")
			if !strings.Contains(ended, "Failed") && !strings.Contains(ended, "Complete") {
				return "the job says: " + ended
			}
			return ""
		})
		states := kubectl(t, w.alice, "-n", "shop", "get", "pods", "-l", "app=nib", "-o", "jsonpath={.items[*].status.phase}")
		if strings.Contains(ended, "Complete") || strings.Contains(states, "Succeeded") || !strings.Contains(states, "Failed") {
			t.Errorf("pods that may send nothing reached desk from their first moment on: job %s, pods %s", ended, states)
		}
	})

	t.Run("nobody meets a guest in its first moments", func(t *testing.T) { w.born(t, desk, service) })

	kubectl(t, w.alice, "-n", "shop", "delete", "networkpolicies", "--all")
	w.ways(t, "with the policies deleted", open...)
	eventually(t, 10*time.Second, "without policies there are no tables of theirs", func() string { // the last policy is deleted a moment after those of these pods
		out, _, err := w.alice.Exec(t.Context(), "nft", "list", "tables")
		if err != nil || strings.Contains(out, "kith-policy") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	kubectl(t, w.alice, "-n", "shop", "delete", "job/nib", "pod/lamp", "service/desk")
}

// born has guests come, which may get and send nothing, in waves. They listen, and try all that is home's, from their first moment on, and a
// pod at home tries the addresses that they will have from before.
func (w *fenced) born(t *testing.T, desk, service string) {
	const each, lasts = 5, "12s"
	waves := 1
	if soaking {
		waves = 3
	}
	kubectl(t, w.alice, "-n", "shop", "delete", "networkpolicies", "--all")
	apply(t, w.alice, policy("born", "born", "Ingress, Egress", "ingress: [], egress: []"))
	targets := []string{"tcp:" + desk, "tcp:" + service, "tcp:10.42.255.1:6443", "tcp:10.43.0.1:443", "tcp:" + kubectl(t, w.alice, "-n", "shop", "get", "pod", "next", "-o", "jsonpath={.status.podIP}") + ":8080"}
	sweeps, _ := json.Marshal(append([]string{"/app", "sweep", "-for", "5s", "-serve"}, targets...))
	met := 0
	var last netip.Addr
	seen := func(selector string) {
		for _, a := range strings.Fields(kubectl(t, w.alice, "-n", "shop", "get", "pods", "-l", selector, "-o", "jsonpath={.items[*].status.podIP}")) {
			if ip := netip.MustParseAddr(a); last.Less(ip) {
				last = ip
			}
		}
	}
	seen("app in (guest,next)")
	for wave := range waves {
		var coming []string // addresses are given one after the other
		for ip := last.Next(); len(coming) < 3*each; ip = ip.Next() {
			coming = append(coming, "tcp:"+ip.String()+":8080")
		}
		var tried sync.WaitGroup
		var out string
		var err error
		tried.Go(func() {
			out, err = w.alice.Kubectl(t.Context(), append([]string{"-n", "shop", "exec", "desk", "--", "/app", "sweep", "-for", lasts}, coming...)...)
		})
		manifest := ""
		for i := range each {
			manifest += strings.Replace(place(fmt.Sprintf("born%d-%d", wave, i), "shop", "kith-bob"), fmt.Sprintf("app: born%d-%d", wave, i), "app: born", 1) +
				`  - {name: sweep, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, env: [{name: HTTP_ADDR, value: ":8081"}, {name: UDP_ADDR, value: ":9998"}], command: ` + string(sweeps) + ", resources: {requests: {cpu: 10m, memory: 8Mi}}}\n"
		}
		apply(t, w.alice, manifest)
		tried.Wait()
		if err != nil {
			t.Fatalf("desk did not try: %v: %s", err, out)
		}
		waitReady(t, w.alice, each, "-n", "shop", "-l", "app=born")
		seen("app=born")
		from := readSweep(out)
		for i := range each {
			name := fmt.Sprintf("born%d-%d", wave, i)
			ip := kubectl(t, w.alice, "-n", "shop", "get", "pod", name, "-o", "jsonpath={.status.podIP}")
			if s, foreseen := from["tcp:"+ip+":8080"]; foreseen {
				if met++; s.Answered > 0 {
					t.Errorf("a pod at home met %s in its first moments: %d of %d tries", name, s.Answered, s.Tries)
				}
			}
			var to map[string]swept
			eventually(t, 30*time.Second, name+" says what it met", func() string {
				out := kubectl(t, w.bob, "-n", w.shop, "logs", name, "-c", "sweep")
				to = readSweep(out)
				for _, target := range targets {
					if to[target].Tries == 0 {
						return "nothing of " + target + ": " + out
					}
				}
				return ""
			})
			for _, target := range targets {
				if s := to[target]; s.Answered > 0 {
					t.Errorf("%s met %s in its first moments: %d of %d tries, the first after %.0f ms", name, target, s.Answered, s.Tries, s.First)
				}
			}
		}
		kubectl(t, w.alice, "-n", "shop", "delete", "pods", "-l", "app=born")
	}
	if met < waves*each/2 {
		t.Errorf("the addresses of %d guests only were tried in their first moments", met)
	}
	t.Logf("%d guests were tried from before their first moment on", met)
}

// policy selects pods by their label app.
func policy(name, app, types, rules string) string {
	return fmt.Sprintf("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: shop}\nspec: {podSelector: {matchLabels: {app: %s}}, policyTypes: [%s], %s}\n", name, app, types, rules)
}

// twice is a Job of two pods at home that dial with the first thing they do.
func twice(name, to string) string {
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: shop}
spec:
  parallelism: 2
  completions: 2
  backoffLimit: 0
  podReplacementPolicy: Failed
  template:
    metadata: {labels: {app: %s}}
    spec:
      restartPolicy: Never
      nodeSelector: {kubernetes.io/hostname: alice}
      containers:
      - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, args: [dial, "%s"], resources: {requests: {cpu: 10m, memory: 16Mi}}}
`, name, name, to)
}

// ways has all be as they should, soon and at once.
func (w *fenced) ways(t *testing.T, when string, list ...way) {
	t.Helper()
	took := eventually(t, 20*time.Second, when, func() string {
		var tries sync.WaitGroup
		wrong := make([]string, len(list))
		for i, to := range list {
			tries.Go(func() {
				at, namespace := w.alice, "shop"
				if to.from == "guest" || to.from == "next" {
					at, namespace = w.bob, w.shop
				}
				if err := dial(t, at, namespace, to.from, to.to); (err == nil) != to.open {
					wrong[i] = fmt.Sprintf("%s to %s: open is %t (%v)", to.from, to.to, err == nil, err)
				}
			})
		}
		tries.Wait()
		return strings.TrimSpace(strings.Join(wrong, " "))
	})
	t.Logf("%s: %s", when, took.Round(time.Millisecond))
}
