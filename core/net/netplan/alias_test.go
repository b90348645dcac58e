package netplan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

var usualPods = netip.MustParsePrefix("10.42.0.0/16")

func prefixes(ss ...string) (out []netip.Prefix) {
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name, real  string
		taken, pool []netip.Prefix
		want        string // a range, or "in " and a block
	}{
		{"free, but not of the pool", "10.42.0.0/16", prefixes("192.168.1.0/24"), nil, "in 10.64.0.0/10"},
		{"free in the pool", "10.66.0.0/16", prefixes("192.168.1.0/24"), nil, "in 10.64.0.0/10"},
		{"in the pool, but a VPN leads there", "10.66.0.0/16", prefixes("10.66.3.0/24"), nil, "in 10.64.0.0/10"},
		{"an office behind the router, of which no route tells", "172.16.0.0/12", nil, nil, "in 10.64.0.0/10"},
		{"that office, when the first block is full", "172.20.0.0/16", prefixes("10.64.0.0/10"), nil, "in 172.16.0.0/12"},
		{"of the owner's own pool", "10.244.0.0/16", nil, prefixes("10.240.0.0/12"), "in 10.240.0.0/12"},
		{"the usual overlap", "10.42.0.0/16", prefixes("10.42.0.0/16"), nil, "in 10.64.0.0/10"},
		{"part of it in use", "10.42.0.0/16", prefixes("10.42.7.0/24"), nil, "in 10.64.0.0/10"},
		{"a /20", "10.42.16.0/20", prefixes("10.42.0.0/16"), nil, "in 10.64.0.0/10"},
		{"a LAN takes 10/8", "10.42.0.0/16", prefixes("10.0.0.0/8"), nil, "in 172.16.0.0/12"},
		{"and docker the next", "10.42.0.0/16", prefixes("10.0.0.0/8", "172.16.0.0/12"), nil, "in 100.64.0.0/10"},
		{"a /12 has place", "10.0.0.0/12", prefixes("10.1.0.0/16"), nil, "in 10.64.0.0/10"},
		{"an /11 is too much", "10.0.0.0/11", nil, nil, ""},
		{"only one is free", "10.42.0.0/16", prefixes("10.42.0.0/16", "10.64.0.0/12", "10.80.0.0/13", "10.89.0.0/16", "10.90.0.0/15", "10.92.0.0/14", "10.96.0.0/11"), prefixes("10.64.0.0/10"), "10.88.0.0/16"},
		{"nothing is free", "10.42.0.0/16", prefixes("10.42.0.0/16", "10.64.0.0/10"), prefixes("10.64.0.0/10"), ""},
		{"a range of the internet", "140.82.0.0/16", nil, nil, "in 10.64.0.0/10"},
		{"loopback", "127.0.0.0/8", nil, nil, ""},
		{"link-local", "169.254.0.0/16", nil, nil, ""},
		{"multicast", "239.0.0.0/8", nil, nil, ""},
		{"everything", "0.0.0.0/0", nil, nil, ""},
		{"too long", "10.42.0.0/29", nil, nil, ""},
		{"with host bits", "10.42.0.1/16", nil, nil, ""},
		{"ipv6", "fd00::/64", nil, nil, ""},
		{"a pool that is all taken but for /28s", "10.42.0.0/28", prefixes("10.42.0.0/16", "10.64.0.0/11", "10.96.0.0/28"), nil, "in 10.96.0.0/11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			real := netip.MustParsePrefix(c.real)
			for i := range 50 {
				seed := fmt.Sprint("peer", i)
				if CheckRange(real) != nil {
					if c.want != "" {
						t.Fatal("cannot be a cluster's")
					}
					return
				}
				if c.pool == nil {
					c.pool = DefaultPool()
				}
				got, err := Choose(real.Bits(), c.taken, c.pool, seed)
				if c.want == "" {
					if err == nil {
						t.Fatalf("got %s", got)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if again, _ := Choose(real.Bits(), c.taken, c.pool, seed); again != got {
					t.Fatalf("%s, then %s", got, again)
				}
				block, within := strings.CutPrefix(c.want, "in ")
				if !within && got.String() != c.want || within && !netip.MustParsePrefix(block).Contains(got.Addr()) {
					t.Fatalf("got %s, want %s", got, c.want)
				}
				if got.Bits() != real.Bits() || got != got.Masked() || !Free(got, c.taken) {
					t.Fatalf("got %s", got)
				}
			}
		})
	}
}

func TestManyPeersGetDifferentAliases(t *testing.T) {
	taken := prefixes("10.42.0.0/16", "10.43.0.0/16", "192.168.1.0/24")
	starts := map[netip.Prefix]int{}
	for i := range 64 {
		alone, err := Choose(usualPods.Bits(), taken[:3], DefaultPool(), fmt.Sprintf("peer-%d/pods", i))
		if err != nil {
			t.Fatal(err)
		}
		starts[alone]++
		p, err := Choose(usualPods.Bits(), taken, prefixes("10.64.0.0/10"), fmt.Sprintf("peer-%d/pods", i))
		if err != nil {
			t.Fatalf("peer %d of 64: %v", i, err)
		}
		taken = append(taken, p)
	}
	if len(starts) < 30 {
		t.Errorf("64 peers begin at only %d places", len(starts))
	}
	if _, err := Choose(usualPods.Bits(), taken, prefixes("10.64.0.0/10"), "one more"); err == nil {
		t.Error("the 65th found a place")
	}
}
