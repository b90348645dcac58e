package mdns

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/trust/identity"
)

func TestOnlyNeighboursAreDialled(t *testing.T) {
	eth := lanInterface{index: 2, name: "eth0"}
	for _, p := range []string{"192.168.1.20/24", "10.9.0.1/30", "203.0.113.5/31", "2001:db8:1::20/64", "2001:db8:2::7/128", "fe80::20/64"} {
		eth.prefixes = append(eth.prefixes, netip.MustParsePrefix(p))
	}
	for announced, want := range map[string]bool{
		"192.168.1.7:6450": true, "192.168.1.1:80": true, "192.168.1.254:6450": true,
		"10.9.0.2:6450": true, "203.0.113.4:6450": true,
		"[2001:db8:1::7]:6450": true, "[fe80::7]:6450": true,

		"192.168.1.20:22":    false, // this laptop
		"192.168.1.255:6450": false, // everybody
		"192.168.1.0:6450":   false,
		"10.9.0.3:6450":      false,
		"10.9.0.1:6450":      false,
		"192.168.2.7:6450":   false, // another network
		"10.0.0.5:6450":      false,
		"1.1.1.1:443":        false,
		"127.0.0.1:6443":     false, "127.1.2.3:6443": false, "[::1]:6443": false,
		"169.254.169.254:80":       false,
		"224.0.0.251:5353":         false,
		"255.255.255.255:6450":     false,
		"0.0.0.0:6450":             false,
		"[::]:6450":                false,
		"[ff02::1]:6450":           false,
		"[fe80::20]:22":            false,
		"[fe80::7%lo]:22":          false, // zones are ours to give
		"[2001:db8:2::8]:6450":     false,
		"[2001:db8:2::7]:6450":     false,
		"[2606:4700::1111]:443":    false,
		"[::ffff:192.168.1.7]:22":  false,
		"[::ffff:127.0.0.1]:22":    false,
		"[fd00::1]:6450":           false,
		"[2001:db8:1:1::7]:6450":   false,
		"203.0.113.6:6450":         false,
		"172.16.0.1:6450":          false,
		"[64:ff9b::a00:5]:6450":    false,
		"[2002:a00:5::1]:6450":     false,
		"[fec0::7]:6450":           false,
		"[2001:db8:1::20]:22":      false,
		"192.168.1.20:6450":        false,
		"10.9.0.0:6450":            false,
		"203.0.113.5:6450":         false,
		"[fe80:0:0:1::7]:6450":     false,
		"100.64.0.1:6450":          false,
		"[2001:db8:1:8000::]:6450": false,
	} {
		if got := len(eth.onLink([]netip.AddrPort{netip.MustParseAddrPort(announced)})) == 1; got != want {
			t.Errorf("%s is dialled: %v, want %v", announced, got, want)
		}
	}
}

func TestTemporaryAddressesStandBackBehindLastingOnes(t *testing.T) {
	all := func(s ...string) (out []netip.Prefix) {
		for _, p := range s {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	lasting, temporary := all("2001:db8:1::20/64", "fe80::20/64", "192.0.2.20/24"), all("2001:db8:1::bad/64", "2001:db8:2::bad/64")
	if got, want := lastingFirst(lasting, temporary), append(lasting[:3:3], temporary[1]); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := lastingFirst(nil, nil); len(got) != 0 {
		t.Error(got)
	}
}

// An address that stands for one of IPv4 (RFC 4291, section 2.5.5) in a record of IPv6 would slip past what is known of that.
func TestMappedAddressesAreNoneOfIPv6(t *testing.T) {
	m, err := parse(compose(t, bobTXT, addrs("::ffff:127.0.0.1", "::ffff:192.168.1.7", "::1", "::", "ff02::1", "fe80::7")...))
	if err != nil || len(m.hellos) != 1 || !slices.Equal(m.hellos[0].addresses, ports("[fe80::7]:6450")) {
		t.Errorf("%+v, %v", m, err)
	}
}

// A machine on the LAN announces itself at addresses that only this laptop can reach.
func TestAnAnnouncementLeadsNowhereElse(t *testing.T) {
	s, err := newResponder(txtOf(identity.ID{1}, "alice"), 6450, func(identity.ID) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	eth := lanInterface{index: 2, name: "eth0", prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("fe80::1/64")}}
	now := time.Now()
	if err := s.setInterfaces(now, []lanInterface{eth}); err != nil {
		t.Fatal(err)
	}
	hear := func(id identity.ID, addrs ...string) error {
		var list []netip.Addr
		for _, a := range addrs {
			list = append(list, netip.MustParseAddr(a))
		}
		packet, err := composeHello(txtOf(id, "mallory"), 22, list, recordTTL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.receive(now, linkKey{2, false, "eth0"}, netip.MustParseAddr("192.0.2.66"), packet)
		return err
	}
	if err := hear(identity.ID{2}, "10.0.0.5", "192.0.2.66", "169.254.169.254", "fe80::66", "2001:db8::1"); err != nil {
		t.Error(err)
	}
	event, ok := s.cache.pending()
	want := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.66:22"), netip.MustParseAddrPort("[fe80::66%eth0]:22")}
	if !ok || !slices.Equal(event.Addresses, want) {
		t.Errorf("heard %v, want %v", event.Addresses, want)
	}
	s.cache.delivered(event)
	if err := hear(identity.ID{3}, "10.0.0.5", "192.0.2.1"); err == nil || !strings.Contains(err.Error(), "no address on this link") {
		t.Error("nothing is wrong:", err)
	}
	if event, ok := s.cache.pending(); ok {
		t.Errorf("heard of %v", event.Addresses)
	}
}

// Whatever is announced, what is dialled is one other machine on this link, and has no zone but ours.
func FuzzOnlyNeighboursAreDialled(f *testing.F) {
	for _, a := range []string{"192.168.1.7", "fe80::7", "::ffff:127.0.0.1", "ff02::fb", "::", "127.0.0.1", "fd00::7", "2001:db8::7", "fe80::7%lo", "::ffff:192.168.1.7%x"} {
		f.Add(a, uint8(24), uint8(64))
	}
	f.Fuzz(func(t *testing.T, announced string, bits4, bits6 uint8) {
		a, err := netip.ParseAddr(announced)
		if err != nil {
			return
		}
		eth := lanInterface{index: 2, name: "eth0"}
		for own, bits := range map[string]uint8{"192.168.1.20": bits4 % 33, "fd00::20": bits6 % 129, "fe80::20": 64} {
			eth.prefixes = append(eth.prefixes, netip.PrefixFrom(netip.MustParseAddr(own), int(bits)))
		}
		for _, to := range eth.onLink([]netip.AddrPort{netip.AddrPortFrom(a, 6450)}) {
			switch b := to.Addr(); {
			case b != a, b.Zone() != "", b.Is4In6(), b.IsLoopback(), b.IsMulticast(), b.IsUnspecified(), eth.has(b):
				t.Fatalf("%s is dialled", b)
			case b.IsLinkLocalUnicast() && b.Is6() && !netip.MustParsePrefix("fe80::/64").Contains(b) && bits6%129 > 9:
				t.Fatalf("%s is dialled, which is on no link", b)
			}
		}
	})
}
