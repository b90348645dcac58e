//go:build lab && soak

package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"kith.dev/test/lab"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestALANThatLosesItsIPv4 has both families at first. When IPv4 is gone the peers go on over the addresses of IPv6 that are left, link-local
// ones in the end, and pods with them.
func TestALANThatLosesItsIPv4(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, LAN: lab.DualStack})
	w := &world{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), apis: map[string]client.Client{}}
	befriend(t, w.alice, w.bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "5")
	reachedAt(t, w.alice, w.bob) // by IPv4, as both have it
	reachedAt(t, w.bob, w.alice)
	kubectl(t, w.alice, "create", "namespace", "shop")
	kith(t, w.alice, "offload", "shop")
	apply(t, w.alice, solo("there", "kith-bob"))
	there := waitReady(t, w.alice, 1, "-n", "shop", "-l", "app=there")[0]

	for _, now := range []struct {
		family, scope string // of the addresses that go
		is            func(netip.Addr) bool
	}{
		{"-4", "global", func(a netip.Addr) bool { return netip.MustParsePrefix("fd00:6b::/64").Contains(a) }},
		{"-6", "global", func(a netip.Addr) bool { return a.IsLinkLocalUnicast() && a.Zone() == "eth0" }},
	} {
		for _, p := range l.Laptops() {
			if out, _, err := p.Exec(t.Context(), "ip", now.family, "address", "flush", "dev", "eth0", "scope", now.scope); err != nil {
				t.Fatalf("%s: %v: %s", p.Name(), err, out)
			}
		}
		took := eventually(t, time.Minute, "without addresses of "+now.family, func() string {
			for p, name := range map[*lab.Laptop]string{w.alice: "bob", w.bob: "alice"} {
				got := peerOf(t, p, name)
				if !got.Reachable || len(got.Addresses) == 0 || !got.Tunnel.Up {
					return fmt.Sprintf("%s: %+v", p.Name(), got)
				}
				if at, err := netip.ParseAddrPort(got.Addresses[0]); err != nil || !now.is(at.Addr()) {
					return fmt.Sprintf("%s reaches %s at %v", p.Name(), name, got.Addresses)
				}
			}
			if err := w.reach(there.Status.PodIP); err != nil {
				return err.Error()
			}
			return ""
		})
		t.Logf("without addresses of %s: all is well after %s", now.family, took.Round(100*time.Millisecond))
	}
	if list := pods(t, w.alice, "-n", "shop", "-l", "app=there"); len(list) != 1 || list[0].Status.ContainerStatuses[0].RestartCount != 0 || list[0].Metadata.Name != there.Metadata.Name {
		t.Errorf("the pod did not live through it: %+v", list)
	}
}
