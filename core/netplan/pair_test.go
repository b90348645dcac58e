package netplan

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

func mapped(real, alias string) Mapping {
	return Mapping{Name: real, Real: netip.MustParsePrefix(real), Alias: netip.MustParsePrefix(alias)}
}

func TestMapping(t *testing.T) {
	m := mapped("10.43.32.0/20", "172.20.16.0/20")
	for _, c := range []struct{ real, alias string }{
		{"10.43.32.0", "172.20.16.0"}, {"10.43.47.255", "172.20.31.255"}, {"10.43.40.1", "172.20.24.1"},
		{"10.43.48.0", ""}, {"10.43.31.255", ""}, {"::1", ""},
	} {
		real := netip.MustParseAddr(c.real)
		got, ok := m.ToAlias(real)
		if ok != (c.alias != "") || ok && got.String() != c.alias {
			t.Errorf("%s: %s, %v", c.real, got, ok)
		}
		if back, _ := m.ToReal(got); ok && back != real {
			t.Errorf("%s came back as %s", c.real, back)
		}
	}
	p := Pair{Theirs: []Mapping{mapped("10.42.0.0/16", "10.65.0.0/16"), m}, Ours: []Mapping{mapped("10.42.0.0/16", "10.70.0.0/16"), m}}
	if got, ok := p.Here(netip.MustParseAddr("10.43.32.9")); !ok || got.String() != "172.20.16.9" {
		t.Errorf("Here: %s, %v", got, ok)
	}
	if got, ok := p.There(netip.MustParseAddr("10.42.0.5")); !ok || got.String() != "10.70.0.5" {
		t.Errorf("There: %s, %v", got, ok)
	}
	if _, ok := p.Here(netip.Addr{}); ok {
		t.Error("no address was translated")
	}
	for _, odd := range []Mapping{{}, mapped("10.42.0.0/16", "fd00::/16"), mapped("fd00::/16", "10.42.0.0/16"), mapped("10.42.0.0/16", "10.65.0.0/17")} {
		for _, a := range []string{"10.42.0.5", "fd00::5", "::ffff:10.42.0.5"} {
			if got, ok := odd.ToAlias(netip.MustParseAddr(a)); ok {
				t.Errorf("%v translates %s to %s", odd, a, got)
			}
		}
	}
}

// FuzzPair: whatever two clusters agreed on, an address that went there and back is the same, nothing leaves the range that it is
// translated into, and a peer speaks of its own addresses alone.
func FuzzPair(f *testing.F) {
	f.Add([]byte{10, 42, 0, 0, 16, 10, 65, 0, 0, 10, 42, 0, 0, 16, 10, 70, 0, 0}, uint32(0x0a2a0005))
	f.Add([]byte{10, 42, 0, 0, 16, 10, 42, 0, 0, 10, 43, 32, 0, 20, 172, 20, 16, 0}, uint32(0x0a2b2fff))
	f.Add([]byte{10, 42, 0, 16, 28, 10, 65, 0, 32, 10, 48, 0, 0, 12, 100, 64, 0, 0}, uint32(0x0a2a001f))
	f.Fuzz(func(t *testing.T, ranges []byte, n uint32) {
		var p Pair
		for i, b := 0, ranges; len(b) >= 9; i, b = i+1, b[9:] {
			bits := int(b[4])%17 + 12
			m := Mapping{"x", netip.PrefixFrom(addrOf(binary.BigEndian.Uint32(b)), bits).Masked(), netip.PrefixFrom(addrOf(binary.BigEndian.Uint32(b[5:])), bits).Masked()}
			if i%2 == 0 {
				p.Theirs = append(p.Theirs, m)
			} else {
				p.Ours = append(p.Ours, m)
			}
		}
		if p.Validate() != nil {
			return
		}
		a := addrOf(n)
		for _, m := range p.Theirs {
			here, ok := m.ToAlias(a)
			if ok != m.Real.Contains(a) || ok && !m.Alias.Contains(here) {
				t.Fatalf("%s of %v is %s, %v", a, m, here, ok)
			}
			if !ok {
				continue
			}
			if got, _ := p.Here(a); got != here {
				t.Fatalf("%s is %s here, not %s", a, got, here)
			}
			if back, _ := p.There(here); back != a {
				t.Fatalf("%s came back as %s", a, back)
			}
		}
		for _, m := range p.Ours {
			if !m.Real.Contains(a) {
				continue
			}
			there, ok := p.There(a)
			if !ok || !m.Alias.Contains(there) {
				t.Fatalf("our %s is %s there, %v", a, there, ok)
			}
			if back, _ := m.ToReal(there); back != a {
				t.Fatalf("our %s came back as %s", a, back)
			}
			if here, ok := p.Here(there); ok && m.Real.Contains(here) {
				t.Fatalf("the peer speaks for our %s: it calls it %s", here, there)
			}
		}
	})
}
