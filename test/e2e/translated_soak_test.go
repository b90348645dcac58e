//go:build lab && soak

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestAProviderWhoseNetworkPluginGivesAddresses: bob's kithd attaches to a cluster, which gives alice's guests addresses of its own. Home, and her
// guests at carol's, see no difference; the guests find all others by name.
func TestAProviderWhoseNetworkPluginGivesAddresses(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3})
	m := &meeting{l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), carol: l.Laptop("carol")}
	attach(t, m.bob)
	m.settle(t)

	there := netip.MustParsePrefix(kubectl(t, m.alice, "get", "peer", "bob", "-o", "jsonpath={.status.network.guestsThere}"))
	real := map[string]string{}
	for _, one := range pods(t, m.bob, "-n", m.twin, "-l", "app=meet") {
		real[one.Metadata.Name] = one.Status.PodIP
	}
	for _, f := range m.on("kith-bob") {
		if ip := netip.MustParseAddr(f.ip); !there.Contains(ip) || real[f.name] == "" || real[f.name] == f.ip {
			t.Errorf("%s has %s at home and %q at bob's, want one of %s at home", f.name, f.ip, real[f.name], there)
		}
	}
	addressesFrom(t, m.bob, "10.42.0.150") // such as no pod of alice's has
	own := kubectl(t, m.bob, "run", "own", "--image=kith.dev/echo:1", "--image-pull-policy=IfNotPresent", "-o", "jsonpath={.metadata.name}")
	kubectl(t, m.bob, "wait", "--for=condition=Ready", "pod/"+own, "--timeout=3m")
	owner := kubectl(t, m.bob, "get", "pod", own, "-o", "jsonpath={.status.podIP}")

	m.meet(t, "at first", owner)
	for _, one := range []struct {
		at   *lab.Laptop
		whom string
	}{{m.alice, "bob"}, {m.bob, "alice"}} {
		var found []api.Finding
		out := kith(t, one.at, "doctor", "-o", "json", one.whom)
		if err := json.Unmarshal([]byte(out), &found); err != nil {
			t.Fatal(err, out)
		}
		for _, name := range []string{"ping", "mtu"} {
			if !slices.ContainsFunc(found, func(f api.Finding) bool { return f.Name == name && f.State == api.CheckOK }) {
				t.Errorf("%s of %s at %s is not well: %+v", name, one.whom, one.at.Name(), found)
			}
		}
	}
	m.away(t)
	if err := m.bob.RestartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "bob is back", func() string {
		if out := peerOf(t, m.alice, "bob"); !out.Reachable || !out.Tunnel.Up {
			return fmt.Sprintf("%+v", out)
		}
		return engineReady(t, m.bob) // before, nobody gets in there
	})
	waitReady(t, m.alice, 6, "-n", "shop", "-l", "app=meet")
	m.meet(t, "with kithd at bob started anew", owner)

	masquerade := []string{"iptables", "-t", "nat", "-A", "POSTROUTING", "-s", "10.42.0.0/16", "!", "-d", "10.42.0.0/16", "-j", "MASQUERADE"} // as flannel has it
	if _, stderr, err := m.bob.Exec(t.Context(), masquerade...); err != nil {
		t.Fatal(err, stderr)
	}
	m.meet(t, "with a plugin that masquerades", owner)
}
