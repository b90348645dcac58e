package location

import (
	"net"
	"net/netip"
	"testing"

	"kith.dev/core/agree/peering"
)

func TestAddressesThatAreTypedIn(t *testing.T) {
	for given, want := range map[string]string{
		"192.0.2.7": "192.0.2.7:6450", "192.0.2.7:7000": "192.0.2.7:7000", "bob.example.org": "bob.example.org:6450", "bob.example.org:1": "bob.example.org:1",
		"2001:db8::7": "[2001:db8::7]:6450", "[2001:db8::7]": "[2001:db8::7]:6450", "[2001:DB8:0::7]:7000": "[2001:db8::7]:7000",
		"fe80::7%lo": "[fe80::7%lo]:6450", "[fe80::7%lo]:7000": "[fe80::7%lo]:7000",
		"2001:db8::7%lo": "[2001:db8::7]:6450", "::ffff:192.0.2.7": "192.0.2.7:6450", "[::ffff:192.0.2.7]:7000": "192.0.2.7:7000",

		"fe80::7": "", "[fe80::7]:6450": "", "fe80::7%no such": "", "fe80::7%": "", "::": "", "0.0.0.0": "", "ff02::fb": "", "ff02::fb%lo": "", "224.0.0.251:6450": "",
		"192.0.2.7:0": "", "192.0.2.7:70000": "", "[2001:db8::7]:0": "", "": "", "a b": "", "bob:x": "",
	} {
		if got, err := withPort(given, 6450); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", given, got, err, want)
		}
	}
}

// What is taken can be dialled, and others can be told it but for the zone.
func FuzzAddressesThatAreTypedIn(f *testing.F) {
	for _, a := range []string{"192.0.2.7", "fe80::7%lo", "[fe80::7%lo]:1", "::ffff:192.0.2.7", "bob.example.org:1", "[::]:6450", "fe80::7%\x1b[2J"} {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, given string) {
		address, err := withPort(given, 6450)
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatalf("%q: %q: %v", given, address, err)
		}
		if a, err := netip.ParseAddr(host); err == nil {
			if linkLocal := a.Is6() && a.IsLinkLocalUnicast(); linkLocal != (a.Zone() != "") || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() {
				t.Fatalf("%q: %q", given, address)
			}
			host = a.WithZone("").String()
		}
		if err := peering.CheckEndpoint(net.JoinHostPort(host, port)); err != nil {
			t.Fatalf("%q: %v", given, err)
		}
		if again, err := withPort(address, 1); err != nil || again != address {
			t.Fatalf("%q: %q, then %q, %v", given, address, again, err)
		}
	})
}
