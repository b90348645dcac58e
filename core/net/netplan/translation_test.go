package netplan

import (
	"net/netip"
	"testing"
)

// A provider has the same ranges as home, and as another provider of home's: what an address means depends on who says it.
func TestTranslation(t *testing.T) {
	there := Translation{mapped("198.18.0.0/16", "10.42.0.0/16"), mapped("10.42.0.0/16", "10.71.0.0/16"), mapped("198.19.4.0/24", "10.72.0.0/24")}
	for _, c := range []struct{ home, here string }{
		{"198.18.3.7", "10.42.3.7"}, // a guest here
		{"10.42.3.7", "10.71.3.7"},  // a pod at home
		{"198.19.4.9", "10.72.0.9"}, // a guest at another provider
		{"198.19.5.9", ""}, {"192.0.2.1", ""}, {"", "10.72.1.9"}, {"", "198.18.3.7"}, {"fd00::1", ""}, {"", "fd00::1"},
	} {
		if got, ok := there.Here(parse(c.home)); c.home != "" && (ok != (c.here != "") || ok && got.String() != c.here) {
			t.Errorf("home's %s is %s here, %v; want %q", c.home, got, ok, c.here)
		}
		if got, ok := there.Home(parse(c.here)); c.here != "" && (ok != (c.home != "") || ok && got.String() != c.home) {
			t.Errorf("%s here is home's %s, %v; want %q", c.here, got, ok, c.home)
		}
	}
	same := netip.MustParseAddr("10.42.3.7")
	for name, by := range map[string]func(netip.Addr) (netip.Addr, bool){"here": Translation(nil).Here, "home": Translation(nil).Home} {
		if got, ok := by(same); got != same || !ok {
			t.Errorf("%s: without translation %s is %s, %v", name, same, got, ok)
		}
	}
}

func parse(s string) netip.Addr { a, _ := netip.ParseAddr(s); return a }
