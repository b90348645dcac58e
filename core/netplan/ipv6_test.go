package netplan

import (
	"crypto/sha256"
	"net/netip"
	"testing"
)

func neutral(t testing.TB, from, to string) Neutral {
	t.Helper()
	n, err := NewNeutral(netip.MustParsePrefix(from), netip.MustParsePrefix(to))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestNeutralTranslation(t *testing.T) {
	for _, c := range []struct{ from, to, a, want string }{
		// The example of RFC 6296, section 3.6.
		{"fd01:203:405::/48", "2001:db8:1::/48", "fd01:203:405:1::1234", "2001:db8:1:d550::1234"},
		{"2001:db8:1::/48", "fd01:203:405::/48", "2001:db8:1:d550::1234", "fd01:203:405:1::1234"},
		{"fd01:203:405::/48", "2001:db8:1::/48", "fd01:203:405:ffff::1", ""},
		{"fd01:203:405::/48", "2001:db8:1::/48", "fd01:203:406:1::1", ""},
		{"fd01:203:405::/48", "2001:db8:1::/48", "192.0.2.1", ""},
		{"fd01:203:405::/48", "2001:db8:1::/48", "fd01:203:405:1::1%eth0", ""},
		{"fd01:203:405::/48", "fd01:203:405::/48", "fd01:203:405:7::1", "fd01:203:405:7::1"},
		// A longer prefix has no subnets to spare: the interface changes (section 3.5).
		{"fd00:0:0:1::/64", "fd00:0:0:3::/64", "fd00:0:0:1::7", "fd00:0:0:3:fffd::7"},
		{"fd00:0:0:1::/64", "fd00:0:0:3::/64", "fd00:0:0:1:5::7", "fd00:0:0:3:3::7"},
		{"fd00:0:0:1::/64", "fd00:0:0:3::/64", "fd00:0:0:1:ffff:5::7", "fd00:0:0:3:ffff:3:0:7"},
		{"fd00:0:0:1::/64", "fd00:0:0:3::/64", "fd00:0:0:1::", ""},
		{"fd00:0:0:1::/64", "fd00:0:0:3::/64", "fd00:0:0:1:ffff:ffff:ffff:ffff", ""},
		{"fd00:0:0:1::/64", "fd00:0:0:3::/64", "fd00:0:0:1:ffff:ffff:ffff:fffe", "fd00:0:0:3:ffff:ffff:ffff:fffc"},
		{"fd00:0:0:1::/64", "fd00:0:0:3::/64", "fd00:0:0:1:2::", ""}, // would be fd00:0:0:3::
		{"fd00:0:0:a0::/60", "fd00:0:0:30::/60", "fd00:0:0:a5::7", "fd00:0:0:35:70::7"},
	} {
		got, ok := neutral(t, c.from, c.to).Move(parse(c.a))
		if ok != (c.want != "") || ok && got != netip.MustParseAddr(c.want) {
			t.Errorf("%s from %s to %s: %s, %v; want %q", c.a, c.from, c.to, got, ok, c.want)
		}
	}
	for _, bad := range [][2]string{
		{"fd00::/48", "fd00::/56"}, {"fd00::/65", "fd00:1::/65"}, {"fd00::/8", "fc00::/8"}, {"fd00::1/64", "fd00:1::/64"}, {"10.0.0.0/16", "10.1.0.0/16"}, {"fd00::/128", "fd01::/128"},
	} {
		if _, err := NewNeutral(netip.MustParsePrefix(bad[0]), netip.MustParsePrefix(bad[1])); err == nil {
			t.Errorf("%v are taken", bad)
		}
	}
	if _, ok := (Neutral{}).Move(parse("::1")); ok {
		t.Error("nothing moves addresses")
	}
}

func FuzzNeutralTranslation(f *testing.F) {
	f.Add([]byte{15: 1}, []byte{0: 0xfd, 15: 9}, []byte{0: 0xfd, 1: 1, 15: 0}, uint8(48))
	f.Add([]byte{8: 0xff, 9: 0xff, 15: 1}, []byte{0: 0xfd, 15: 9}, []byte{0: 0x20, 1: 1, 15: 0}, uint8(63))
	f.Fuzz(func(t *testing.T, host, one, other []byte, bits uint8) {
		at := func(b []byte) (a [16]byte) { copy(a[:], b); return a }
		from, err := netip.AddrFrom16(at(one)).Prefix(int(bits))
		to, err2 := netip.AddrFrom16(at(other)).Prefix(int(bits))
		if err != nil || err2 != nil {
			return
		}
		forth, err := NewNeutral(from, to)
		if err != nil {
			return
		}
		back, err := NewNeutral(to, from)
		if err != nil {
			t.Fatal(err)
		}
		// An address below from, with the host's other bits.
		b, p := at(host), from.Addr().As16()
		for i := range int(bits) {
			bit := byte(0x80) >> (i % 8)
			b[i/8] = b[i/8]&^bit | p[i/8]&bit
		}
		a := netip.AddrFrom16(b)
		there, ok := forth.Move(a)
		if !ok {
			return
		}
		if !to.Contains(there) || sum(there) != sum(a) {
			t.Fatalf("%s from %s to %s is %s: sums %04x, %04x", a, from, to, there, sum(a), sum(there))
		}
		if again, ok := back.Move(there); !ok || again != a {
			t.Fatalf("%s from %s to %s is %s, and that is %s, %v", a, from, to, there, again, ok)
		}
	})
}

func TestRangesOfIPv6FollowFromKeys(t *testing.T) {
	unique := netip.MustParsePrefix("fd00::/8")
	seen := map[netip.Prefix]bool{}
	for i := range 100 {
		a, b := sha256.Sum256([]byte{1, byte(i)}), sha256.Sum256([]byte{2, byte(i)})
		for _, p := range []netip.Prefix{ClusterPrefix(a), ClusterPrefix(b), GuestPrefix(a, b), GuestPrefix(b, a)} {
			if !unique.Overlaps(p) || p != p.Masked() || seen[p] {
				t.Errorf("%s", p)
			}
			seen[p] = true
		}
		if ClusterPrefix(a).Bits() != 48 || GuestPrefix(a, b).Bits() != 64 || GuestPrefix(a, b) != GuestPrefix(a, b) {
			t.Error("lengths, or values, differ")
		}
	}
	// Both sides, and their later versions, compute the same.
	alice, bob := sha256.Sum256([]byte("alice")), sha256.Sum256([]byte("bob"))
	if got := ClusterPrefix(alice).String() + " " + GuestPrefix(alice, bob).String(); got != "fdf2:cb96:9b35::/48 fd63:33ee:5a24:a1a8::/64" {
		t.Error(got)
	}
}
