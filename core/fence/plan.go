//go:build linux

package fence

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/netplan"
)

// hostState is what the fence follows of the host.
type hostState struct {
	routers []netip.Addr // the next hops of default routes
	uplinks []string     // devices of default routes without a next hop, such as a VPN's
}

// A plan is a whole table as a value.
type plan struct {
	chains  []chain
	sets    []set
	buckets buckets
}

type chain struct {
	name     string
	hook     *nftables.ChainHook // nil: reached by a jump only
	priority nftables.ChainPriority
	rules    [][]expr.Any
}

// set holds ranges of addresses, names of interfaces, or a map from ranges to chains. Its elements are sorted.
type set struct {
	name     string
	key      nftables.SetDatatype
	verdicts bool
	elements []nftables.SetElement
}

// Names of the sets that are always there.
const (
	guestsSet  = "guests"  // addresses of guests here
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

// planOf makes the table from all that is known.
func planOf(cfg Config, rel Relations, host hostState) plan {
	tenants := settled(rel.Tenants)
	providers := slices.SortedFunc(slices.Values(rel.Providers), func(a, b Provider) int { return strings.Compare(a.Peer, b.Peer) })
	var guests, abroad []netip.Prefix
	for _, t := range tenants {
		guests = append(guests, t.Guests...)
	}
	for _, p := range providers {
		abroad = append(abroad, p.Guests)
	}
	p := plan{buckets: bucketsOf(tenants, providers), chains: cfg.chains(tenants, providers), sets: []set{
		addresses(guestsSet, guests),
		{name: tenantsMap, key: nftables.TypeIPAddr, verdicts: true},
		addresses(abroadSet, abroad),
		addresses(pairsSet, slices.Concat(guests, abroad)),
		addresses(routersSet, single(host.routers)),
		{name: uplinksSet, key: nftables.TypeIFName, elements: interfaces(host.uplinks)},
		addresses(closedSet, append(slices.Clone(private), cfg.Pods, cfg.Services)),
	}}
	for _, t := range tenants {
		p.sets[1].elements = append(p.sets[1].elements, leading(spans(t.Guests), expr.VerdictJump, t.chain())...)
		p.sets = append(p.sets, addresses(t.guests(), t.Guests), addresses(t.home(), t.Home))
	}
	return p
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
func addresses(name string, list []netip.Prefix) set {
	return set{name: name, key: nftables.TypeIPAddr, elements: spans(list)}
}

func single(list []netip.Addr) (out []netip.Prefix) {
	for _, a := range list {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// spans are ranges as a set takes them: beginning and, as an element of its own, the first address behind. The kernel refuses what
// overlaps or touches.
func spans(list []netip.Prefix) (out []nftables.SetElement) {
	for _, s := range netplan.Spans(list) {
		out = append(out, nftables.SetElement{Key: s.From.AsSlice()})
		if s.Behind.IsValid() {
			out = append(out, nftables.SetElement{Key: s.Behind.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}

// leading has the ranges of a map lead to a chain.
func leading(ranges []nftables.SetElement, how expr.VerdictKind, to string) []nftables.SetElement {
	for i := range ranges {
		if !ranges[i].IntervalEnd {
			ranges[i].VerdictData = &expr.Verdict{Kind: how, Chain: to}
		}
	}
	return ranges
}

func interfaces(names []string) (out []nftables.SetElement) {
	names = slices.Sorted(slices.Values(names))
	for _, n := range slices.Compact(names) {
		out = append(out, nftables.SetElement{Key: ifname(n)})
	}
	return out
}

// ifname is the form in which the kernel compares names: all of IFNAMSIZ.
func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b[:unix.IFNAMSIZ-1], name)
	return b
}
