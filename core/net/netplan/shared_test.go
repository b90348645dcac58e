package netplan

import (
	"net/netip"
	"strings"
	"testing"
)

func TestGuestsAndSharedPodsHaveAddressesApart(t *testing.T) {
	guests := netip.MustParsePrefix("10.127.3.0/24")
	last, seen := LastGuest(guests), map[netip.Addr]bool{}
	if last != netip.MustParseAddr("10.127.3.127") {
		t.Errorf("the last guest's is %s", last)
	}
	for a := range SharedAt(guests, 100) {
		if seen[a] || !guests.Contains(a) || !last.Less(a) || a == Last(guests) {
			t.Errorf("%s", a)
		}
		seen[a] = true
	}
	if len(seen) != MaxShared {
		t.Errorf("%d addresses", len(seen))
	}
	for a := range SharedAt(guests, 100) {
		if a != netip.MustParseAddr("10.127.3.228") {
			t.Errorf("from 100 on the first is %s", a)
		}
		break
	}
}

func TestSharedPodsThatCannotBeMeant(t *testing.T) {
	shared := func(pairs ...string) Pair {
		p := Pair{Here: netip.MustParsePrefix("10.127.3.0/24"), AtHome: netip.MustParseAddr("10.42.255.2"), Space: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}}
		for _, pair := range pairs {
			as, pod, _ := strings.Cut(pair, "=")
			p.Shared = append(p.Shared, Shared{netip.MustParseAddr(as), netip.MustParseAddr(pod)})
		}
		return p
	}
	if err := shared("10.127.3.200=10.42.0.5", "10.127.3.201=10.42.0.6").Validate(); err != nil {
		t.Error(err)
	}
	for what, p := range map[string]Pair{
		"one address for two": shared("10.127.3.200=10.42.0.5", "10.127.3.200=10.42.0.6"),
		"two for one":         shared("10.127.3.200=10.42.0.5", "10.127.3.201=10.42.0.5"),
		"of another's range":  shared("10.127.4.200=10.42.0.5"),
		"another family":      shared("10.127.3.200=fd00::1"),
	} {
		if p.Validate() == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
