//go:build linux

package fence

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"kith.dev/core/nft"
)

// hostState is what the fence follows of the host.
type hostState struct {
	routers []netip.Addr // the next hops of default routes
	uplinks []string     // devices of default routes without a next hop, such as a VPN's
}

// A plan is what is to be in the kernel: the fence for IPv4, what drops guests' IPv6, and the limits.
type plan struct{ fence, limits []nft.Table }

// Names of the sets that are always there.
const (
	guestsSet  = "guests"  // addresses of guests here
	apartSet   = "apart"   // of those, on other nodes, which fence them
	tenantsMap = "tenants" // the chain that says what a guest may reach, by its address
	abroadSet  = "abroad"  // addresses of our guests at providers
	pairsSet   = "pairs"   // all of both
	routersSet = "routers"
	uplinksSet = "uplinks"
	closedSet  = "closed" // ranges that are not the internet
)

// private are the blocks that do not belong to the internet (RFC 6890); 169.254.169.254, where clouds keep
// credentials, is among them.
var private = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("224.0.0.0/3"),
}

// planOf makes the tables from all that is known.
func planOf(cfg Config, a allowance, rel Relations, host hostState) plan {
	tenants := settled(rel.Tenants)
	providers := slices.SortedFunc(slices.Values(rel.Providers), func(a, b Provider) int { return strings.Compare(a.Peer, b.Peer) })
	var guests, apart, abroad []netip.Prefix
	for _, t := range tenants {
		guests, apart = append(guests, t.Guests...), append(apart, t.Apart...)
	}
	for _, p := range providers {
		abroad = append(abroad, p.Guests)
	}
	var leads []nftables.SetElement
	for _, t := range tenants {
		leads = append(leads, leading(t.Guests, expr.VerdictJump, t.chain())...)
	}
	sets := []nft.Set{
		addresses(guestsSet, guests...),
		addresses(apartSet, apart...),
		{Name: tenantsMap, Key: nftables.TypeIPAddr, Data: nftables.TypeVerdict, Elements: leads},
		addresses(abroadSet, abroad...),
		addresses(pairsSet, slices.Concat(guests, abroad)...),
		addresses(routersSet, single(host.routers)...),
		{Name: uplinksSet, Key: nftables.TypeIFName, Elements: interfaces(host.uplinks)},
		addresses(closedSet, append(slices.Clone(private), cfg.Pods, cfg.Services)...),
	}
	for _, t := range tenants {
		sets = append(sets, addresses(t.guests(), t.Guests...), addresses(t.home(), t.Home...))
	}
	return plan{
		fence: []nft.Table{
			{Family: nftables.TableFamilyIPv4, Chains: cfg.chains(tenants, providers), Sets: sets},
			{Family: nftables.TableFamilyIPv6, Chains: cfg.chains6()},
		},
		limits: []nft.Table{cfg.limits(a, tenants, providers)},
	}
}

func (t Tenant) chain() string  { return "tenant-" + t.Consumer }
func (t Tenant) guests() string { return "guests-" + t.Consumer }
func (t Tenant) home() string   { return "home-" + t.Consumer }

// settled has tenants in order, and takes from them the addresses that two of them claim: those are nobody's.
func settled(tenants []Tenant) []Tenant {
	type claim struct {
		of     int // index of the tenant
		guests netip.Prefix
		lost   bool
	}
	tenants = slices.SortedFunc(slices.Values(tenants), func(a, b Tenant) int { return strings.Compare(a.Consumer, b.Consumer) })
	var all []claim
	for i, t := range tenants {
		for _, g := range t.Guests {
			if g.IsValid() && g.Addr().Is4() {
				all = append(all, claim{of: i, guests: g.Masked()})
			}
		}
		tenants[i].Guests = nil
	}
	slices.SortFunc(all, func(a, b claim) int { return a.guests.Compare(b.guests) })
	for i, around := 0, 0; i < len(all); i++ { // prefixes hold each other or are apart
		switch {
		case !all[around].guests.Contains(all[i].guests.Addr()):
			around = i
		case all[around].of != all[i].of:
			all[around].lost, all[i].lost = true, true
		}
	}
	for _, c := range all {
		if !c.lost {
			tenants[c.of].Guests = append(tenants[c.of].Guests, c.guests)
		}
	}
	return tenants
}

// addresses is a set of ranges.
func addresses(name string, list ...netip.Prefix) nft.Set {
	return nft.Set{Name: name, Key: nftables.TypeIPAddr, Elements: nft.Spans(list)}
}

func single(list []netip.Addr) (out []netip.Prefix) {
	for _, a := range list {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// leading has ranges lead to a chain, in a map.
func leading(ranges []netip.Prefix, how expr.VerdictKind, to string) []nftables.SetElement {
	list := nft.Spans(ranges)
	for i := range list {
		if !list[i].IntervalEnd {
			list[i].VerdictData = &expr.Verdict{Kind: how, Chain: to}
		}
	}
	return list
}

func interfaces(names []string) (out []nftables.SetElement) {
	names = slices.Sorted(slices.Values(names))
	for _, n := range slices.Compact(names) {
		out = append(out, nftables.SetElement{Key: nft.Ifname(n)})
	}
	return out
}
