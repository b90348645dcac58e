package netplan

import (
	"fmt"
	"net/netip"
	"slices"
)

// Mapping is one range of addresses under its two names: Real as its owner uses it, Alias as the other side sees
// it. Both have the same length, and the host part of an address is the same under both.
type Mapping struct {
	Name  string       `json:"name"` // what the range is for, such as "pods"
	Real  netip.Prefix `json:"real"`
	Alias netip.Prefix `json:"alias"`
}

// ToAlias gives the other side's name of an address its owner uses; false when the address is not in the range.
func (m Mapping) ToAlias(a netip.Addr) (netip.Addr, bool) { return move(a, m.Real, m.Alias) }

// ToReal gives the owner's name of an address the other side uses; false when the address is not in the range.
func (m Mapping) ToReal(a netip.Addr) (netip.Addr, bool) { return move(a, m.Alias, m.Real) }

func move(a netip.Addr, from, to netip.Prefix) (netip.Addr, bool) {
	a = a.Unmap()
	if !a.Is4() || !to.Addr().Is4() || from.Bits() != to.Bits() || !from.Contains(a) {
		return netip.Addr{}, false
	}
	host := ^Mask(from)
	return addrOf(Number(to.Addr())&^host | Number(a)&host), true
}

// validate refuses ranges that no pod network has and that would take something else away from this host.
func (m Mapping) validate() error {
	switch {
	case m.Name == "":
		return fmt.Errorf("range %s has no name", m.Real)
	case m.Real.Bits() != m.Alias.Bits():
		return fmt.Errorf("range %s: %s and %s differ in length", m.Name, m.Real, m.Alias)
	}
	if err := CheckRange(m.Real); err != nil {
		return fmt.Errorf("range %s: %w", m.Name, err)
	}
	if err := CheckRange(m.Alias); err != nil {
		return fmt.Errorf("range %s: alias: %w", m.Name, err)
	}
	return nil
}

// unusable are the IPv4 blocks that are never a pod's (RFC 6890).
var unusable = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"),
}

// private are the blocks of private use (RFC 1918, RFC 6598) and that of benchmarks (RFC 2544), in which guests have their addresses.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("198.18.0.0/15"),
}

// The lengths a range may have. The longest has room for one node; four of the shortest fill a block of the default pool, and
// a peer that names more of it would leave nothing to others.
const (
	minBits = 12
	maxBits = 28
)

// CheckRange reports why a range a peer names cannot be one of a cluster: it must be IPv4, /12 to /28, written without host
// bits, neither loopback, link-local, multicast nor reserved.
func CheckRange(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return fmt.Errorf("no range given")
	case !p.Addr().Is4():
		return fmt.Errorf("%s is not IPv4", p)
	case p.Bits() < minBits || p.Bits() > maxBits:
		return fmt.Errorf("%s: length must be /%d to /%d", p, minBits, maxBits)
	case p != p.Masked():
		return fmt.Errorf("%s has host bits, %s was meant", p, p.Masked())
	}
	if i := slices.IndexFunc(unusable, p.Overlaps); i >= 0 {
		return fmt.Errorf("%s lies in %s, which no cluster can use", p, unusable[i])
	}
	return nil
}

// Private reports whether a range is of private use.
func Private(p netip.Prefix) bool { return Within(p, private) }
