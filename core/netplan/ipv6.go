package netplan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// The ranges of IPv6 are not agreed on: everybody computes them. They follow from keys, so that no two clusters have the same ones, and
// neither side has to be asked, or believed. All are unique local (RFC 4193) with more bits of a hash than its 40: who looks for a key
// whose range is a given /64 tries 2^56.

// ClusterPrefix is the /48 of a cluster, given its ID: a /64 of it is a node's pods, and a /112 its services.
func ClusterPrefix(cluster [sha256.Size]byte) netip.Prefix {
	return local(48, "kith cluster v1\x00", cluster[:])
}

// GuestPrefix is the /64 of one cluster's guests at another, given their IDs. In the other direction it is another.
func GuestPrefix(home, provider [sha256.Size]byte) netip.Prefix {
	return local(64, "kith guests v1\x00", home[:], provider[:])
}

// local prefix that follows from what is hashed: its purpose, and IDs, all of one length.
func local(bits int, purpose string, ids ...[]byte) netip.Prefix {
	h := sha256.Sum256(append([]byte(purpose), slices.Concat(ids...)...))
	a := [16]byte(h[:])
	a[0] = 0xfd
	p, _ := netip.AddrFrom16(a).Prefix(bits)
	return p
}

// Neutral moves addresses of IPv6 from one prefix to another such that the sum of their words stays the same, and with it the checksum
// of every protocol that covers addresses: nothing of a packet is changed but the address itself (NPTv6, RFC 6296). It is its own way
// back with the prefixes exchanged.
type Neutral struct {
	from, to netip.Prefix
	adjust   uint16 // what is added to one word, modulo 2^16-1
}

// NewNeutral wants prefixes of one length, /16 to /64, without host bits.
func NewNeutral(from, to netip.Prefix) (Neutral, error) {
	for _, p := range []netip.Prefix{from, to} {
		if !p.IsValid() || !p.Addr().Is6() || p.Addr().Is4In6() || p != p.Masked() || p.Bits() < 16 || p.Bits() > 64 {
			return Neutral{}, fmt.Errorf("%s is no prefix of IPv6, /16 to /64, that addresses can be moved to or from", p)
		}
	}
	if from.Bits() != to.Bits() {
		return Neutral{}, fmt.Errorf("%s and %s differ in length", from, to)
	}
	return Neutral{from, to, less(sum(from.Addr()), sum(to.Addr()))}, nil
}

// Move gives the address under the other prefix; false when it is not under the first, or one of the few that have no counterpart: with
// a /48 or shorter the subnet 0xffff, with a longer one the interface 0, which is any router's, what would become that, and the interface all of
// whose bits are set (sections 3.4 and 3.5).
func (n Neutral) Move(a netip.Addr) (netip.Addr, bool) {
	if a.Zone() != "" || !n.from.IsValid() || !n.from.Contains(a) {
		return netip.Addr{}, false
	}
	b, prefix := a.As16(), n.to.Addr().As16()
	words := []int{3}
	if n.from.Bits() > 48 {
		words = []int{4, 5, 6, 7}
		if binary.BigEndian.Uint64(b[8:]) == 0 {
			return netip.Addr{}, false
		}
	}
	i := slices.IndexFunc(words, func(w int) bool { return word(b, w) != 0xffff })
	if i < 0 {
		return netip.Addr{}, false
	}
	whole := n.from.Bits() / 8
	copy(b[:whole], prefix[:whole])
	if rest := n.from.Bits() % 8; rest > 0 {
		host := byte(0xff) >> rest
		b[whole] = prefix[whole]&^host | b[whole]&host
	}
	binary.BigEndian.PutUint16(b[2*words[i]:], add(word(b, words[i]), n.adjust))
	return netip.AddrFrom16(b), n.from.Bits() <= 48 || binary.BigEndian.Uint64(b[8:]) != 0
}

func word(b [16]byte, i int) uint16 { return binary.BigEndian.Uint16(b[2*i:]) }

// sum of the words of an address, modulo 2^16-1: the checksum of the internet (RFC 1071) without its last complement.
func sum(a netip.Addr) (s uint16) {
	b := a.As16()
	for i := range 8 {
		s = add(s, word(b, i))
	}
	return s
}

// add is modulo 2^16-1, and gives 0 for 0xffff.
func add(a, b uint16) uint16 { return uint16((uint32(a) + uint32(b)) % 0xffff) }

func less(a, b uint16) uint16 { return add(a, ^b) }
