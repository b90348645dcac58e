package netplan

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
)

// Cluster6 is the two IPv6 ranges of a cluster that has both families; the zero value is of one that has IPv4 alone. Two clusters may
// well have the same ones, as K3s's documentation has 2001:cafe:42::/56 and 2001:cafe:43::/112 for everybody.
type Cluster6 struct {
	Pods     netip.Prefix // /48 to /63, of which the node has the first /64 and the last is Kith's
	Services netip.Prefix // /108 to /120
}

// NodeBits6 is the length of a node's part of the pods' IPv6 range, as kube-controller-manager gives it.
const NodeBits6 = 64

// Usual6 is the ranges of a cluster of which nothing else is set: out of a prefix of unique local addresses (RFC 4193) that follows from
// the cluster's ID, so that two laptops have different ones.
func Usual6(id [sha256.Size]byte) Cluster6 {
	global := unique("kith cluster", id) // 40 bits of it
	pods, services := global, global
	pods[6], pods[7] = 0x42, 0
	services[6], services[7] = 0x43, 0
	return Cluster6{
		Pods:     netip.PrefixFrom(netip.AddrFrom16(pods), 56).Masked(),
		Services: netip.PrefixFrom(netip.AddrFrom16(services), 112).Masked(),
	}
}

// unique is a /64 of unique local addresses: the 56 bits behind fd00::/8 are of the hash of what it is for, and for whom.
func unique(label string, ids ...[sha256.Size]byte) (a [16]byte) {
	h := sha256.New()
	h.Write([]byte(label + " ipv6\x00"))
	for _, id := range ids {
		h.Write(id[:])
	}
	a[0] = 0xfd
	copy(a[1:8], h.Sum(nil))
	return a
}

// Validate says what is wrong with the ranges of a cluster whose addresses Kith gives.
func (c Cluster6) Validate() error {
	if err := CheckRange6(c.Pods); err != nil {
		return fmt.Errorf("IPv6 pod range: %w", err)
	}
	if c.Pods.Bits() < 48 || c.Pods.Bits() >= NodeBits6 { // kube-controller-manager has no more than 16 bits of nodes
		return fmt.Errorf("IPv6 pod range %s: want /48 to /%d, such as 2001:cafe:42::/56", c.Pods, NodeBits6-1)
	}
	if err := CheckRange6(c.Services); err != nil {
		return fmt.Errorf("IPv6 service range: %w", err)
	}
	if c.Services.Bits() < 108 || c.Services.Bits() > 120 { // kube-apiserver has no more than 20 bits of services
		return fmt.Errorf("IPv6 service range %s: want /108 to /120, such as 2001:cafe:43::/112", c.Services)
	}
	if c.Pods.Overlaps(c.Services) {
		return fmt.Errorf("the IPv6 ranges of pods %s and of services %s overlap", c.Pods, c.Services)
	}
	return nil
}

// NodePods is the part of the pods' range from which this node's pods get their addresses: the first /64.
func (c Cluster6) NodePods() netip.Prefix { return netip.PrefixFrom(nth(c.Pods, 0), NodeBits6) }

// Node is the node's address, the first of the last /64 of the pods' range.
func (c Cluster6) Node() netip.Addr { return nth(c.own(), 1) }

// Gateway is the address of the tunnel's device, the one behind the node's.
func (c Cluster6) Gateway() netip.Addr { return nth(c.own(), 2) }

// DNS is the service address of the cluster's DNS, the tenth of the services' range.
func (c Cluster6) DNS() netip.Addr { return nth(c.Services, 10) }

// API is the first service address. Upstream's kubernetes.default has one family alone, IPv4 here: nothing else is to have this one, either.
func (c Cluster6) API() netip.Addr { return nth(c.Services, 1) }

// own is the last /64 of the pods' range, which no node gives to its pods.
func (c Cluster6) own() netip.Prefix { return netip.PrefixFrom(Last(c.Pods), NodeBits6).Masked() }

// unusable6 are the IPv6 blocks of the two below that are never a pod's, for they lead elsewhere (RFC 6890): Teredo and 6to4.
var unusable6 = []netip.Prefix{netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("2002::/16")}

// usable6 are the blocks of unique local and of global unicast addresses. What is not in them, as ::1, fe80::/10, ff00::/8 and the
// addresses that stand for IPv4's, is no cluster's.
var usable6 = []netip.Prefix{uniqueLocal, netip.MustParsePrefix("2000::/3")}

var uniqueLocal = netip.MustParsePrefix("fd00::/8")

// The lengths an IPv6 range may have that a peer names.
const (
	minBits6 = 32
	maxBits6 = 120
)

// CheckRange6 is CheckRange of IPv6: /32 to /120, written without host bits, of unique local or global unicast addresses.
func CheckRange6(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return fmt.Errorf("no range given")
	case !p.Addr().Is6() || p.Addr().Is4In6():
		return fmt.Errorf("%s is not IPv6", p)
	case p.Bits() < minBits6 || p.Bits() > maxBits6:
		return fmt.Errorf("%s: length must be /%d to /%d", p, minBits6, maxBits6)
	case p != p.Masked():
		return fmt.Errorf("%s has host bits, %s was meant", p, p.Masked())
	case !Within(p, usable6):
		return fmt.Errorf("%s has neither unique local (fd00::/8) nor global unicast (2000::/3) addresses", p)
	case !Free(p, unusable6):
		return fmt.Errorf("%s has addresses of Teredo (2001::/32) or 6to4 (2002::/16), which no cluster can use", p)
	}
	return nil
}
