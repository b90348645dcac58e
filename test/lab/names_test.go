package lab

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/nftables"
)

func TestNamesAndAddressesAreUnique(t *testing.T) {
	for _, lan := range []Family{IPv4, IPv6, LinkLocal, DualStack} {
		names, addresses := map[string]bool{}, map[netip.Addr]bool{lan.address(router): true}
		for i := 1; i <= Most; i++ {
			n, a := NameOf(i), lan.address(firstHost(i))
			if names[n] || addresses[a] || indexOf(n) != i || !lan.networks()[0].Contains(a.WithZone("")) || i <= 90 && hostOf(a) >= movedFirst {
				t.Errorf("laptop %d: %s at %s", i, n, a)
			}
			if len(n) > 15 {
				t.Errorf("%s is too long for an interface", n)
			}
			names[n], addresses[a] = true, true
		}
	}
	if NameOf(1) != "alice" || NameOf(7) != "laptop07" || IPv4.address(firstHost(2)).String() != "192.0.2.12" || indexOf("lan") != 0 {
		t.Error("names or addresses changed")
	}
}

func TestFamilies(t *testing.T) {
	for name, want := range map[string]string{
		"": "192.0.2.12", "ipv4": "192.0.2.12", "dual": "192.0.2.12", "ipv6": "fd00:6b::c", "link-local": "fe80::c%eth0", "IPv6": "", "both": "",
	} {
		f, err := ParseFamily(name)
		if (err == nil) != (want != "") || err == nil && f.address(firstHost(2)).String() != want {
			t.Errorf("%q: %q, %s, %v; want %s", name, f, f.address(firstHost(2)), err, want)
		}
	}
	if got := DualStack.networks(); len(got) != 2 || hostIn(got[1], 12).String() != "fd00:6b::c" {
		t.Error(got)
	}
}

func TestFreeAddress(t *testing.T) {
	for _, c := range []struct {
		lan                      Family
		alice, bob, outside      string
		first, last, third, ever string // to be had: .102, .250, .120's next, .50
	}{
		{IPv4, "192.0.2.11", "192.0.2.101", "10.0.0.1", "192.0.2.102", "192.0.2.250", "192.0.2.121", "192.0.2.50"},
		{IPv6, "fd00:6b::b", "fd00:6b::65", "fd00:6c::b", "fd00:6b::66", "fd00:6b::fa", "fd00:6b::79", "fd00:6b::32"},
		{LinkLocal, "fe80::b%eth0", "fe80::65%eth0", "fe80::32", "fe80::66%eth0", "fe80::fa%eth0", "fe80::79%eth0", "fe80::32%eth0"},
	} {
		a := netip.MustParseAddr
		taken := map[netip.Addr]string{c.lan.address(router): "the LAN's router", a(c.alice): "alice", a(c.bob): "bob"}
		for _, to := range []struct{ now, want, got string }{
			{c.alice, "", c.first},
			{c.last, "", c.first},
			{c.lan.address(120).String(), "", c.third},
			{c.alice, c.ever, c.ever},
			{c.alice, c.bob, ""},
			{c.alice, c.lan.address(router).String(), ""},
			{c.alice, c.lan.address(255).String(), ""},
			{c.alice, c.lan.address(0).String(), ""},
			{c.alice, c.outside, ""},
			{c.alice, "::1", ""},
		} {
			var want netip.Addr
			if to.want != "" {
				want = a(to.want)
			}
			got, err := freeAddress(c.lan, taken, a(to.now), want)
			if to.got == "" && err == nil || to.got != "" && (err != nil || got != a(to.got)) {
				t.Errorf("from %s to %q: %v, %v", to.now, to.want, got, err)
			}
		}
	}
}

func TestDropsOfCutsAndLosses(t *testing.T) {
	fw, pre, post := *nftables.ChainHookForward, *nftables.ChainHookPrerouting, *nftables.ChainHookPostrouting
	got := drops([]Cut{cutOf("bob", "alice"), cutOf("carol", "")}, map[string]float64{"dave": 0.1, "alice": 0})
	want := []drop{
		{fw, "alice", "bob", 1}, {fw, "bob", "alice", 1},
		{pre, "carol", "", 1}, {post, "", "carol", 1},
		{fw, "dave", "", 0.1}, {fw, "", "dave", 0.1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWithGroup(t *testing.T) {
	for in, want := range map[string]string{
		"":                         "kith:x:900:\n",
		"root:x:0:":                "root:x:0:\nkith:x:900:\n",
		"a:x:900:\nb:x:899:\n":     "a:x:900:\nb:x:899:\nkith:x:898:\n",
		"root:x:0:\nkith:x:5:me\n": "root:x:0:\nkith:x:5:me\n",
	} {
		if got := withGroup(in, "kith"); got != want {
			t.Errorf("withGroup(%q) = %q", in, got)
		}
	}
}

func TestClustersAreNamedAndCounted(t *testing.T) {
	for text, want := range map[string]Cluster{
		"corp=3": {"corp", 3}, "a1=1": {"a1", 1}, "corp=9": {"corp", 9},
		"corp": {}, "corp=": {}, "corp=0": {}, "corp=10": {}, "corp=03": {}, "corp=3x": {}, "=3": {}, "Corp=3": {}, "a-b=3": {}, "1a=2": {}, "averylongname1=2": {},
	} {
		if got, err := ParseCluster(text); (err == nil) != (want != Cluster{}) || err == nil && got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for i := 1; i <= Most; i++ {
		if isNode(NameOf(i)) {
			t.Errorf("%s is a laptop and a node", NameOf(i))
		}
	}
	seen := map[string]bool{IPv4.address(router).String(): true}
	for i := 1; i <= Most; i++ {
		seen[IPv4.address(firstHost(i)).String()] = true
	}
	for i := nodeIndex + 1; i <= nodeIndex+MostNodes; i++ {
		if a := nodeAddress(i).String(); seen[a] {
			t.Errorf("node %d has %s, as another", i, a)
		} else {
			seen[a] = true
		}
	}
	if name := (Cluster{"corp", 3}).NodeName(1); name != "corp-1" || !isNode(name) || isNode(lanName) {
		t.Errorf("%s", name)
	}
}
