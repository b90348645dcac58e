//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestTwoBehindFirewallsMeetByACommonPeer: nobody can dial alice or bob. Both reach carol, by whom they become peers, and a pod of alice's at bob is
// reached by its service.
func TestTwoBehindFirewallsMeetByACommonPeer(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3, Config: map[string]any{"catalogue": true, "relay": "offer", "discovery": map[string]any{"lan": false}}})
	alice, bob, carol := l.Laptop("alice"), l.Laptop("bob"), l.Laptop("carol")
	shell := func(p *lab.Laptop, script string) {
		t.Helper()
		if out, stderr, err := p.Exec(t.Context(), "sh", "-ec", script); err != nil {
			t.Fatalf("%s: %v %s%s", script, err, out, stderr)
		}
	}
	for _, p := range []*lab.Laptop{alice, bob} {
		shell(p, "iptables -I INPUT -i eth0 -m conntrack --ctstate NEW -j DROP")
	}
	address := func(p *lab.Laptop) string {
		t.Helper()
		a, err := p.Address()
		if err != nil {
			t.Fatal(err)
		}
		return a.String()
	}
	way := func(from *lab.Laptop, to, by string, tunnel api.TunnelWay) {
		t.Helper()
		eventually(t, time.Minute, fmt.Sprintf("%s reaches %s by %q, the tunnel is %q", from.Name(), to, by, tunnel), func() string {
			if p := peerOf(t, from, to); !p.Reachable || p.By != by || p.Tunnel.Way != tunnel {
				return fmt.Sprintf("reachable: %t, by %q, tunnel %+v, %s", p.Reachable, p.By, p.Tunnel, p.Why)
			}
			return ""
		})
	}
	for _, p := range []*lab.Laptop{alice, bob} {
		kith(t, p, "peer", "add", address(carol))
		befriend(t, p, carol, "--cpu", "100m", "--memory", "64Mi", "--pods", "2")
		way(p, "carol", "", api.TunnelDirect)
		way(carol, p.Name(), p.Name(), api.TunnelDirect)
	}

	kith(t, bob, "share", "50%", "--list-at", "carol")
	eventually(t, 30*time.Second, "carol lists bob", func() string {
		out, err := asking(t, alice, "catalogue", "carol")
		if err != nil || !strings.Contains(out, "bob") {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	eventually(t, 30*time.Second, "alice comes to bob by carol", func() string { // the catalogue may know of him a moment before he can be called
		if out, err := asking(t, alice, "peer", "add", "bob", "--from", "carol"); err != nil {
			return fmt.Sprint(out, err)
		}
		return ""
	})
	befriend(t, alice, bob, "--cpu", "400m", "--memory", "256Mi", "--pods", "10")
	if p := peerOf(t, alice, "bob"); p.By != "carol" {
		t.Errorf("alice reaches bob by %q", p.By)
	}
	way(alice, "bob", "carol", api.TunnelPunched)
	t.Log(kith(t, alice, "peers", "-o", "wide"))
	out, _ := asking(t, alice, "doctor", "bob")
	t.Log(out)

	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop", "--strategy", "remote", "--peers", "bob")
	kubectl(t, alice, "-n", "shop", "create", "deployment", "web", "--image=kith.dev/echo:1")
	kubectl(t, alice, "-n", "shop", "expose", "deployment", "web", "--port=80", "--target-port=8080")
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=web")
	service := kubectl(t, alice, "-n", "shop", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	answers := func(when string) {
		t.Helper()
		eventually(t, time.Minute, "the service answers "+when, func() string {
			out, stderr, err := alice.Exec(t.Context(), "curl", "-sS", "-m", "5", "http://"+service+"/")
			if err != nil {
				return fmt.Sprint(out, stderr, err)
			}
			return ""
		})
	}
	answers("through the tunnel between firewalls")

	// Where no UDP passes, carol passes the packets on, too.
	shell(bob, "iptables -I OUTPUT -o eth0 -p udp -j DROP; iptables -I INPUT -i eth0 -p udp -j DROP")
	way(alice, "bob", "carol", api.TunnelCarried)
	if p := peerOf(t, alice, "bob"); p.Tunnel.By != "carol" || p.Tunnel.Reason == "" {
		t.Errorf("the tunnel is relayed by %q, since %q", p.Tunnel.By, p.Tunnel.Reason)
	}
	if out := kith(t, alice, "peers", "bob", "-o", "wide"); !strings.Contains(out, "tunnel relayed by carol") {
		t.Errorf("it is not said:\n%s", out)
	}
	answers("by carol")
	shell(bob, "iptables -D OUTPUT -o eth0 -p udp -j DROP; iptables -D INPUT -i eth0 -p udp -j DROP")
	way(alice, "bob", "carol", api.TunnelPunched)

	// Whoever can be dialled is.
	shell(bob, "iptables -D INPUT -i eth0 -m conntrack --ctstate NEW -j DROP")
	kith(t, alice, "peer", "add", address(bob))
	way(alice, "bob", "", api.TunnelDirect)
	answers("directly")
}
