package lab

import (
	"fmt"
	"net/netip"
)

// Family is which addresses the LAN has. Whatever it is, each interface also has the link-local address of IPv6 that every machine gives
// itself.
type Family string

// The families of a LAN.
const (
	IPv4      Family = ""           // 192.0.2.0/24
	IPv6      Family = "ipv6"       // fd00:6b::/64 alone, as a router there advertises it
	LinkLocal Family = "link-local" // nobody advertises anything, and there is no IPv4: what two laptops at one cable have
	DualStack Family = "dual"       // 192.0.2.0/24 and fd00:6b::/64
)

// The networks of LANs. One is TEST-NET-1 (RFC 5737), one unique local (RFC 4193).
var (
	lanPrefix  = netip.MustParsePrefix("192.0.2.0/24")
	lanPrefix6 = netip.MustParsePrefix("fd00:6b::/64")
	linkLocal  = netip.MustParsePrefix("fe80::/64")
)

// ParseFamily reads a name that a person gives; "" and ipv4 are the same.
func ParseFamily(name string) (Family, error) {
	switch f := Family(name); f {
	case IPv4, IPv6, LinkLocal, DualStack:
		return f, nil
	case "ipv4":
		return IPv4, nil
	}
	return "", fmt.Errorf("LAN %q: use ipv4, ipv6, link-local or dual", name)
}

// networks that laptops have addresses of, the one of Laptop.Address first.
func (f Family) networks() []netip.Prefix {
	switch f {
	case IPv6:
		return []netip.Prefix{lanPrefix6}
	case LinkLocal:
		return []netip.Prefix{linkLocal}
	case DualStack:
		return []netip.Prefix{lanPrefix, lanPrefix6}
	}
	return []netip.Prefix{lanPrefix}
}

// address of a host, by which it is known; a link-local one is behind the one interface that every laptop has.
func (f Family) address(host byte) netip.Addr {
	a := hostIn(f.networks()[0], host)
	if f == LinkLocal {
		a = a.WithZone(device)
	}
	return a
}

// hostIn is the address of a host in a network: the host is its last byte.
func hostIn(network netip.Prefix, host byte) netip.Addr {
	b := network.Addr().AsSlice()
	b[len(b)-1] = host
	a, _ := netip.AddrFromSlice(b)
	return a
}

// hostOf is the inverse of Family.address.
func hostOf(a netip.Addr) byte { return a.As16()[15] }

// router is the host that is every laptop's default gateway.
const router = 1
