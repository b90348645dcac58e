package guestnet

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheNetworkOfANamespaceIsAFileAsHostLocalTakesIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "guests")
	guests := netip.MustParsePrefix("10.127.0.0/24")
	for range 2 {
		if err := WriteNetwork(dir, "shop-a", guests, netip.Prefix{}, netip.Prefix{}); err != nil {
			t.Fatal(err)
		}
	}
	// The engine's plugin hands it on as it is: engine/network/mark.
	if b, err := os.ReadFile(filepath.Join(dir, "shop-a")); err != nil || string(b) != `{"subnet":"10.127.0.0/24","gateway":"10.127.0.1","rangeEnd":"10.127.0.127"}` {
		t.Errorf("%s, %v", b, err)
	}
	before, err := os.Stat(filepath.Join(dir, "shop-a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteNetwork(dir, "shop-a", guests, netip.Prefix{}, netip.Prefix{}); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(filepath.Join(dir, "shop-a")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the same is written again: %v", err)
	}
	if err := WriteNetwork(dir, "shop-a", guests, netip.Prefix{}, netip.MustParsePrefix("fd71:1:2:3::/64")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "shop-a")); err != nil || string(b) != `{"subnet":"10.127.0.0/24","gateway":"10.127.0.1","rangeEnd":"10.127.0.127","ipv6":{"subnet":"fd71:1:2:3::/64","gateway":"fd71:1:2:3::1"}}` {
		t.Errorf("of both families: %s, %v", b, err)
	}
	for range 2 {
		if err := RemoveNetwork(dir, "shop-a"); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestNetworksOfNoNamespaceAndNoRangeAreRefused(t *testing.T) {
	dir, guests := t.TempDir(), netip.MustParsePrefix("10.127.0.0/24")
	for _, namespace := range []string{"", ".", "..", "../shop", "a/b", ".new-1", "Shop", strings.Repeat("a", 64)} {
		for i, err := range []error{WriteNetwork(dir, namespace, guests, netip.Prefix{}, netip.Prefix{}), RemoveNetwork(dir, namespace)} {
			if err == nil || !strings.Contains(err.Error(), "is no name of a namespace") {
				t.Errorf("%q, %d: %v", namespace, i, err)
			}
		}
	}
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("10.127.0.0/25"), netip.MustParsePrefix("10.127.0.1/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("fd00::/24")} {
		if err := WriteNetwork(dir, "shop-a", p, netip.Prefix{}, netip.Prefix{}); err == nil {
			t.Errorf("%s is taken", p)
		}
	}
	for _, p := range []string{"fd00::/56", "fe80::/64", "fd71:1:2:3::1/64", "10.127.4.0/24"} {
		if err := WriteNetwork(dir, "shop-a", guests, netip.Prefix{}, netip.MustParsePrefix(p)); err == nil {
			t.Errorf("%s is taken beside IPv4", p)
		}
	}
	if err := WriteNetwork("", "shop-a", guests, netip.Prefix{}, netip.Prefix{}); err == nil || !strings.Contains(err.Error(), "does not give") {
		t.Errorf("an engine without: %v", err)
	}
}

func TestTenantsThatTakeFromEachOtherAreRefused(t *testing.T) {
	a := netip.MustParseAddr
	g, h := netip.MustParsePrefix("10.127.0.0/24"), netip.MustParsePrefix("10.127.4.0/24")
	many := Services{}
	for n := range MaxServices + 1 {
		many[netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)})] = netip.AddrFrom4([4]byte{10, 97, byte(n >> 8), byte(n)})
	}
	for why, tenants := range map[string][]Tenant{
		"want a /24":             {{Guests: netip.MustParsePrefix("10.127.0.0/25")}},
		"no range given":         {{}},
		"two homes":              {{Guests: g}, {Guests: g}},
		"one family":             {{Guests: g, Guests6: netip.MustParsePrefix("fd00:1:2:3::/64"), Services: Services{a("fd00::1"): a("10.43.7.7")}}},
		"that guests have":       {{Guests: g, Services: Services{a("fd00::1"): a("fd00::2")}}},
		"want a /64":             {{Guests: g, Guests6: netip.MustParsePrefix("fd00::/56")}},
		"range fd00:1:2:3::/64":  {{Guests: g, Guests6: netip.MustParsePrefix("fd00:1:2:3::/64")}, {Guests: h, Guests6: netip.MustParsePrefix("fd00:1:2:3::/64")}},
		"is the service":         {{Guests: g, Services: Services{a("10.43.9.8"): a("10.43.7.7"), a("10.43.9.9"): a("10.43.7.7")}}},
		"4097 services, at most": {{Guests: g, Services: many}},
	} {
		if err := check(tenants); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
	same := Services{a("10.43.9.9"): a("10.43.7.7")} // as far as the maps are concerned, each has its own
	if err := check([]Tenant{{Guests: g, Services: same}, {Guests: h, Services: same}}); err != nil {
		t.Error(err)
	}
}
