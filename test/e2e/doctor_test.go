//go:build lab && soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestDoctorAndMetrics looks at two laptops that are well, takes one thing after the other away, and wants each named.
func TestDoctorAndMetrics(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Config: map[string]any{"metricsAddress": "127.0.0.1:6452"}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, solo("away", "kith-bob"))
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=away")

	t.Run("all is well", func(t *testing.T) {
		for _, p := range []*lab.Laptop{alice, bob} {
			found, err := examine(t, p)
			if err != nil || len(notOK(found)) > 0 {
				t.Errorf("%s: %v\n%s", p.Name(), err, strings.Join(notOK(found), "\n"))
			}
		}
		found, _ := examine(t, alice)
		for _, name := range []string{"api-server", "node", "node-address", "dns", "peer-api", "wireguard", "pod-range", "guest-range", "forwarding",
			"tun", "nftables", "inotify", "space", "address", "connect", "key", "protocol", "clock", "contract", "handshake", "ping", "mtu"} {
			if !slices.ContainsFunc(found, func(f api.Finding) bool { return f.Name == name }) {
				t.Errorf("%s was not looked at", name)
			}
		}
	})
	t.Run("metrics", func(t *testing.T) { metricsOf(t, alice, bob) })
	t.Run("a cut link", func(t *testing.T) {
		if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		found, err := examine(t, alice, "bob")
		if err == nil {
			t.Error("kith doctor did not fail")
		}
		want(t, found, "fail connect: 192.0.2.12:6450: no answer", "warning contract: bob cannot be asked", "fail ping: three packets had no answer")
		eventually(t, 30*time.Second, "kith status says so", func() string {
			if out := kith(t, alice, "status"); !strings.Contains(out, "warning: bob cannot be reached\n  no answer, for ") {
				return instead(out)
			}
			return ""
		})
		if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		well(t, alice)
	})
	t.Run("a firewall that lets no UDP through", func(t *testing.T) {
		rules := func(add string) {
			t.Helper()
			for _, rule := range []string{"INPUT -p udp --dport 6450", "OUTPUT -p udp --sport 6450"} {
				if out, stderr, err := bob.Exec(t.Context(), "sh", "-c", "iptables "+add+" "+rule+" -j DROP"); err != nil {
					t.Fatalf("iptables: %v %s%s", err, out, stderr)
				}
			}
		}
		rules("-I")
		found, _ := examine(t, alice, "bob")
		want(t, found, "fail ping: three packets had no answer")
		rules("-D")
		well(t, alice)
	})
	t.Run("a port that another program has, and no kithd", func(t *testing.T) {
		if err := alice.StopDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			alice.Run(ctx, lab.Command{Args: []string{"kith-k8s", "kubectl", "proxy", "--port=6450"}})
		}()
		var found []api.Finding
		eventually(t, 20*time.Second, "the port is taken", func() string {
			found, _ = examine(t, alice)
			if !slices.ContainsFunc(found, func(f api.Finding) bool { return f.Name == "peer-api" && f.State == api.CheckFail }) {
				return fmt.Sprint(found)
			}
			return ""
		})
		want(t, found, "fail kithd: nobody answers", "fail peer-api: two programs")
		stop()
		<-ended
		if err := alice.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		well(t, alice)
	})
	t.Run("the node's address is gone", func(t *testing.T) {
		if _, stderr, err := alice.Exec(t.Context(), "ip", "link", "set", "kith-node", "down"); err != nil {
			t.Fatalf("%v %s", err, stderr)
		}
		found, _ := examine(t, alice)
		if !slices.ContainsFunc(found, func(f api.Finding) bool {
			return f.Name == "node-address" && f.State == api.CheckFail && strings.Contains(f.What, "is down")
		}) {
			t.Errorf("%s", strings.Join(notOK(found), "\n"))
		}
	})
}

// metricsOf scrapes both laptops: all that is documented is there, nothing else is, and the figures are right.
func metricsOf(t *testing.T, alice, bob *lab.Laptop) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(name, "kith_") {
			documented[name] = true
		}
	}
	seen := map[string]bool{}
	of := map[*lab.Laptop]map[string]*dto.MetricFamily{}
	for _, p := range []*lab.Laptop{alice, bob} {
		of[p] = scrape(t, p)
		for name := range of[p] {
			seen[name] = true
			if strings.HasPrefix(name, "kith_") && !documented[name] {
				t.Errorf("%s is not documented", name)
			}
		}
	}
	for name := range documented {
		switch name {
		case "kith_component_failures_total": // nothing failed
		default:
			if !seen[name] {
				t.Errorf("%s is documented and on neither laptop", name)
			}
		}
	}
	for _, tc := range []struct {
		p      *lab.Laptop
		name   string
		labels string
		value  float64
	}{
		{alice, "kith_engine_state", "kind=builtin,state=ready", 1},
		{alice, "kith_peers", "direction=outgoing,state=connected", 1},
		{alice, "kith_tunnel_up", "peer=bob", 1},
		{alice, "kith_granted", "peer=bob,resource=cpu", 0.5},
		{alice, "kith_granted_used", "peer=bob,resource=pods", 1},
		{alice, "kith_pods_abroad", "peer=bob", 1},
		{alice, "kith_contracts", "role=consumer,state=connected", 1},
		{bob, "kith_contracts", "role=provider,state=connected", 1},
		{bob, "kith_requests_answered_total", "outcome=accepted", 1},
		{bob, "kith_guests", "peer=alice,phase=Running", 1},
		{bob, "kith_sharing_promised", "resource=cpu", 0.5},
		{bob, "kith_sharing_used", "resource=pods", 1},
		{bob, "kith_problems", "severity=error", 0},
	} {
		if got, ok := valueOf(of[tc.p][tc.name], tc.labels); !ok || got != tc.value {
			t.Errorf("%s: %s{%s} is %g (%t), want %g", tc.p.Name(), tc.name, tc.labels, got, ok, tc.value)
		}
	}
	out, stderr, err := alice.Exec(t.Context(), "curl", "-sf", "http://127.0.0.1:6452/metrics")
	if err != nil || !strings.Contains(out, "kith_build_info{") || !strings.Contains(out, "process_resident_memory_bytes ") {
		t.Errorf("at metricsAddress: %v %s %.300s", err, stderr, out)
	}
}
