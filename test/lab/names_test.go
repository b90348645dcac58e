package lab

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/nftables"
)

func TestNamesAndAddressesAreUnique(t *testing.T) {
	names, addresses := map[string]bool{}, map[netip.Addr]bool{router: true}
	for i := 1; i <= Most; i++ {
		n, a := NameOf(i), firstAddress(i)
		if names[n] || addresses[a] || indexOf(n) != i || !lanPrefix.Contains(a) || a.As4()[3] >= movedFirst {
			t.Errorf("laptop %d: %s at %s", i, n, a)
		}
		if len(n) > 15 {
			t.Errorf("%s is too long for an interface", n)
		}
		names[n], addresses[a] = true, true
	}
	if NameOf(1) != "alice" || NameOf(7) != "laptop07" || firstAddress(2).String() != "192.0.2.12" || indexOf("lan") != 0 {
		t.Error("names or addresses changed")
	}
}

func TestFreeAddress(t *testing.T) {
	a := netip.MustParseAddr
	taken := map[netip.Addr]string{router: "the LAN's router", a("192.0.2.11"): "alice", a("192.0.2.101"): "bob"}
	for _, c := range []struct{ now, want, got string }{
		{"192.0.2.11", "", "192.0.2.102"},
		{"192.0.2.250", "", "192.0.2.102"},
		{"192.0.2.120", "", "192.0.2.121"},
		{"192.0.2.11", "192.0.2.50", "192.0.2.50"},
		{"192.0.2.11", "192.0.2.101", ""},
		{"192.0.2.11", "192.0.2.1", ""},
		{"192.0.2.11", "192.0.2.255", ""},
		{"192.0.2.11", "10.0.0.1", ""},
		{"192.0.2.11", "::1", ""},
	} {
		var want netip.Addr
		if c.want != "" {
			want = a(c.want)
		}
		got, err := freeAddress(taken, a(c.now), want)
		if c.got == "" && err == nil || c.got != "" && (err != nil || got != a(c.got)) {
			t.Errorf("from %s to %q: %v, %v", c.now, c.want, got, err)
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
	seen := map[string]bool{router.String(): true}
	for i := 1; i <= Most; i++ {
		seen[firstAddress(i).String()] = true
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
