//go:build lab && soak

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestTheDoctorNamesWhatIsBrokenOnEachEngine: on the built-in engine, on a K3s and on a cluster that kithd attached to, the doctor finds nothing while
// all is well; and when the API server, the node, the tunnel or the routes to pods are broken, it says so by name.
func TestTheDoctorNamesWhatIsBrokenOnEachEngine(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3, Engines: map[string]string{"bob": lab.K3s}})
	alice, bob, carol := l.Laptop("alice"), l.Laptop("bob"), l.Laptop("carol")
	attach(t, carol)
	for _, p := range []*lab.Laptop{alice, bob, carol} {
		eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
		kubectl(t, p, "create", "namespace", "shop")
		apply(t, p, solo("at-home", p.Name()))
	}
	for _, p := range []*lab.Laptop{bob, carol} {
		befriend(t, alice, p, "--cpu", "200m", "--memory", "256Mi", "--pods", "5")
	}
	for _, p := range []*lab.Laptop{alice, bob, carol} {
		waitReady(t, p, 1, "-n", "shop", "-l", "app=at-home")
		well(t, p)
		found, _ := examine(t, p)
		for _, name := range []string{"api-server", "node", "pod-routes", "ping"} {
			if !slices.ContainsFunc(found, func(f api.Finding) bool { return f.Name == name }) {
				t.Errorf("at %s, %s was not looked at", p.Name(), name)
			}
		}
	}
	const engine = `pgrep -x 'kith-k8s|k3s'`
	// Of the network plugin's configuration: containerd follows the folder, and without one of them no pod has a network.
	const plugin = `for f in $(find /var/lib/kith/k8s /var/lib/kith/k3s -name '*.conflist' 2>/dev/null); do `
	for _, f := range []struct {
		fault, finding, says string
		plant, heal          string
		ready                string // what the API server says of the node before the doctor is asked; it does not care about the others
	}{
		{"the API server does not answer", "api-server", "does not answer", `kill -STOP $(` + engine + `)`, `kill -CONT $(` + engine + `) || true`, ""},
		{"the node is not Ready", "node", "is not Ready", plugin + `mv $f $f.away; done`, `for f in $(find /var/lib/kith/k8s /var/lib/kith/k3s -name '*.away' 2>/dev/null); do mv $f ${f%.away}; done`, "False"},
		{"nothing passes the tunnel", "ping", "does not answer through the tunnel",
			"iptables -I INPUT -p udp --dport 6450 -j DROP; iptables -I OUTPUT -p udp --sport 6450 -j DROP", "iptables -D INPUT -p udp --dport 6450 -j DROP; iptables -D OUTPUT -p udp --sport 6450 -j DROP", ""},
		{"the route to pods is gone", "pod-routes", "pods on this node are not reached", "ip link set cni0 down", "ip link set cni0 up", ""},
	} {
		for _, p := range []*lab.Laptop{alice, bob, carol} {
			t.Run(f.fault+" at "+p.Name(), func(t *testing.T) {
				do := func(script string) {
					t.Helper()
					if out, stderr, err := p.Exec(t.Context(), "sh", "-ec", script); err != nil {
						t.Fatalf("%s: %v %s%s", script, err, out, stderr)
					}
				}
				node := func(ready string) {
					t.Helper()
					eventually(t, time.Minute, "the node is Ready: "+ready, func() string {
						return kubectlUntil(t, p, ready, "get", "node", p.Name(), "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
					})
				}
				do(f.plant)
				if f.ready != "" {
					node(f.ready)
				}
				found, err := examine(t, p)
				i := slices.IndexFunc(found, func(n api.Finding) bool { return n.Name == f.finding && n.State == api.CheckFail })
				if i < 0 || err == nil {
					t.Errorf("%s is not found (%v):\n%s", f.finding, err, strings.Join(notOK(found), "\n"))
				} else {
					t.Logf("%s: %s; %s; %s", f.finding, found[i].What, found[i].Why, found[i].Do)
					if !strings.Contains(found[i].What, f.says) || found[i].Why == "" || found[i].Do == "" {
						t.Errorf("it says too little: %+v", found[i])
					}
				}
				do(f.heal)
				node("True")
				well(t, p)
			})
		}
	}
	for _, p := range []*lab.Laptop{alice, bob, carol} {
		well(t, p)
	}
}
