//go:build linux

package fence

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/nft"
)

// family is IPv4 or IPv6. The rules are the same for both; only the expressions differ.
type family struct {
	Config
	six bool

	// of this family
	Pods, Services netip.Prefix
	DNS            netip.Addr

	table  nftables.TableFamily
	key    nftables.SetDatatype // of sets of addresses
	icmp   byte                 // its ICMP
	closed []netip.Prefix       // blocks that do not belong to the internet
	spans  func([]netip.Prefix) []nftables.SetElement
}

func (c Config) ipv4() family {
	return family{
		Config: c, Pods: c.Pods, Services: c.Services, DNS: c.DNS,
		table: nftables.TableFamilyIPv4, key: nftables.TypeIPAddr, icmp: unix.IPPROTO_ICMP, closed: private, spans: nft.Spans,
	}
}

func (c Config) ipv6() family {
	return family{
		Config: c, six: true, Pods: c.IPv6.Pods, Services: c.IPv6.Services, DNS: c.IPv6.DNS(),
		table: nftables.TableFamilyIPv6, key: nftables.TypeIP6Addr, icmp: unix.IPPROTO_ICMPV6, closed: private6, spans: nft.Spans6,
	}
}

// private6 are the blocks of IPv6 that do not belong to the internet: all but 2000::/3, and of that, those that stand for addresses of
// IPv4 (Teredo, 6to4) and that of documentation.
var private6 = []netip.Prefix{
	netip.MustParsePrefix("::/3"), netip.MustParsePrefix("4000::/2"), netip.MustParsePrefix("8000::/1"),
	netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
}

// of is the range of our guests at a provider.
func (f family) of(p Provider) netip.Prefix {
	if f.six {
		return p.Guests6
	}
	return p.Guests
}

func (f family) has(p netip.Prefix) bool { return p.IsValid() && p.Addr().Is6() == f.six }

// ip saddr, ip6 saddr
func (f family) source() expr.Any {
	if f.six {
		return nft.Source6()
	}
	return nft.Source()
}

// ip daddr, ip6 daddr
func (f family) destination() expr.Any {
	if f.six {
		return nft.Destination6()
	}
	return nft.Destination()
}

// icmp type echo-request, icmpv6 type echo-request
func (f family) echoRequest() []expr.Any {
	if f.six {
		return nft.ICMP6(128)
	}
	return nft.ICMP(8)
}

// neighbours is what a guest and this host say to each other to find their link-layer addresses: of IPv6, for ARP is none of these tables'.
// It is not tracked. The kernel takes it from the link alone (its hop limit), and answers for addresses of that link.
func (f family) neighbours() (rules [][]expr.Any) {
	if f.six {
		const solicitation, advertisement = 135, 136
		rules = append(rules, rule(nft.ICMP6(solicitation), accept()), rule(nft.ICMP6(advertisement), accept()))
	}
	return rules
}

// rt ip nexthop @SET, rt ip6 nexthop @SET
func (f family) nextHopIn(set string) []expr.Any {
	key := expr.RtNexthop4
	if f.six {
		key = expr.RtNexthop6
	}
	return nft.Load(&expr.Rt{Register: 1, Key: key}, in(set))
}

// aRouterIsNext matches what goes to the next hop of a default route. Routers of IPv6 are known by addresses of their links, which others behind
// other links may have too: so it is a link of a default route, as well.
func (f family) aRouterIsNext() []expr.Any {
	if f.six {
		return rule(toIn(linksSet), f.nextHopIn(routersSet))
	}
	return f.nextHopIn(routersSet)
}

// ct state related meta l4proto icmp: errors about a connection, path MTU among them.
func (f family) anError() []expr.Any {
	return rule(tracked(expr.CtKeySTATE, expr.CtStateBitRELATED), nft.Protocol(f.icmp))
}

// ct state invalid meta l4proto icmp: errors about no connection that is known. A socket would believe them all the same.
func (f family) anErrorOfNothing() []expr.Any {
	return rule(tracked(expr.CtKeySTATE, expr.CtStateBitINVALID), nft.Protocol(f.icmp))
}

// quotes is the destination of the packet that an ICMP error quotes: of the IP header behind the eight bytes of ICMP's own (RFC 792, RFC 4443).
func (f family) quotes() expr.Any {
	at, size := uint32(nft.DestinationAt), uint32(4)
	if f.six {
		at, size = nft.DestinationAt6, 16
	}
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 8 + at, Len: size}
}

// counter reject with icmp admin-prohibited: whoever is known is told at once, instead of waiting in vain.
func (f family) reject() []expr.Any {
	code := uint8(adminForbidden)
	if f.six {
		code = adminForbidden6
	}
	return []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}
}

// addresses makes a set of those of the ranges that are of the family.
func (f family) addresses(name string, list ...netip.Prefix) nft.Set {
	return nft.Set{Name: name, Key: f.key, Elements: f.spans(list)}
}

// leading makes the elements of a verdict map that lead ranges to a chain.
func (f family) leading(ranges []netip.Prefix, how expr.VerdictKind, to string) []nftables.SetElement {
	list := f.spans(ranges)
	for i := range list {
		if !list[i].IntervalEnd {
			list[i].VerdictData = &expr.Verdict{Kind: how, Chain: to}
		}
	}
	return list
}
