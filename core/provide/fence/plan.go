//go:build linux

package fence

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"kith.dev/core/net/nft"
)

// hostState is what the fence follows of the host.
type hostState struct {
	routers           []netip.Addr // the next hops of default routes, of both families
	uplinks, uplinks6 []string     // devices of default routes without a next hop, such as a VPN's, by family
	links6            []string     // devices of IPv6's default routes with one
	guests            []guestLink  // links of guests, as far as they are known
	marked            []int        // links of the group, by their numbers

	// of a cluster whose network plugin connects guests
	wires       wires
	outer       []string // links that are not pods'
	standing    []string // links of pods that are none of a guest who is awaited
	bridges     []string // of pods
	calm, calm6 calm     // for how long other links, and unknown addresses, are certainly not a guest's
	bridged     bool     // the rules of IPv4 see what goes from port to port of a bridge
}

// A plan is what is to be in the kernel: the fence for IPv4, that for IPv6 or what drops guests' IPv6, and the bounds.
type plan struct{ fence, limits, links, bandwidth []nft.Table }

// Names of the sets that are always there.
const (
	guestsSet  = "guests"  // addresses of guests here
	apartSet   = "apart"   // of those, on other nodes, which fence them
	tenantsMap = "tenants" // the chain that says what a guest may reach, by its address
	abroadSet  = "abroad"  // addresses of our guests at providers
	pairsSet   = "pairs"   // all of both
	routersSet = "routers"
	uplinksSet = "uplinks"
	linksSet   = "links"  // of IPv6's routers
	closedSet  = "closed" // ranges that are not the internet

	guestLinksSet = "guest-links"
	addressesSet  = "addresses" // of guests, each with its link
	hardwareSet   = "hardware"  // link-layer addresses, likewise
	askingSet     = "asking"    // links of guests that asked for neighbours

	calmSet     = "calm" // the family, while who is not known is surely no guest; see Fence.look
	outerSet    = "outer"
	standingSet = "standing"
	ownSet      = "own"   // addresses of the owner's pods here
	localSet    = "local" // ranges of pods here
)

// private are the blocks that do not belong to the internet (RFC 6890); 169.254.169.254, where clouds keep
// credentials, is among them.
var private = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("224.0.0.0/3"),
}

// planOf makes the tables from the relations and the state of the host.
func planOf(cfg Config, a allowance, rel Relations, host hostState) plan {
	providers := slices.SortedFunc(slices.Values(rel.Providers), func(a, b Provider) int { return strings.Compare(a.Peer, b.Peer) })
	four := cfg.ipv4()
	tenants, lost := four.settled(rel.Tenants)
	closed := append(lost, rel.Plugin.Closed...)
	p := plan{
		fence:  []nft.Table{{Family: four.table, Chains: four.chains(tenants, providers), Sets: four.sets(tenants, providers, host, rel.Plugin, closed)}},
		limits: []nft.Table{four.limits(a, tenants, providers, closed)},
		links:  cfg.links(tenants, host, rel.Plugin),
	}
	if !cfg.both() {
		p.fence = append(p.fence, cfg.dropping6(host, closed))
		p.bandwidth = []nft.Table{cfg.bandwidth(tenants, nil)}
		return p
	}
	tenants4 := tenants
	six := cfg.ipv6()
	tenants, lost = six.settled(rel.Tenants)
	p.fence = append(p.fence, nft.Table{Family: six.table, Chains: six.chains(tenants, providers), Sets: six.sets(tenants, providers, host, Plugin{}, lost)})
	p.limits = append(p.limits, six.limits(a, tenants, providers, lost))
	p.bandwidth = []nft.Table{cfg.bandwidth(tenants4, tenants)}
	return p
}

// sets that rules ask.
func (f family) sets(tenants []Tenant, providers []Provider, host hostState, plugin Plugin, closed []netip.Prefix) []nft.Set {
	var abroad []netip.Prefix
	apart, guests := slices.Clone(plugin.Apart), []netip.Prefix(nil)
	if f.Group == 0 { // they are known by nothing else
		guests = slices.Clone(closed)
	}
	var leads []nftables.SetElement
	for _, t := range tenants {
		guests, apart = append(guests, t.Guests...), append(apart, t.Apart...)
		leads = append(leads, f.leading(t.Guests, expr.VerdictJump, t.chain())...)
	}
	for _, p := range providers {
		abroad = append(abroad, f.of(p))
	}
	uplinks := host.uplinks
	if f.six {
		uplinks = host.uplinks6
	}
	sets := []nft.Set{
		f.addresses(guestsSet, guests...),
		f.addresses(apartSet, apart...),
		{Name: tenantsMap, Key: f.key, Data: nftables.TypeVerdict, Elements: leads},
		f.addresses(abroadSet, abroad...),
		f.addresses(pairsSet, slices.Concat(guests, abroad)...),
		f.addresses(routersSet, single(host.routers)...),
		{Name: uplinksSet, Key: nftables.TypeIFName, Elements: interfaces(uplinks)},
		f.addresses(closedSet, append(slices.Clone(f.closed), f.Pods, f.Services)...),
	}
	if f.Group == 0 {
		sets = append(sets, append(f.links(host), f.calmly(f.table, host.calm), nft.Set{Name: outerSet, Key: nftables.TypeIFName, Elements: interfaces(host.outer)},
			f.addresses(ownSet, single(plugin.Own)...), f.addresses(localSet, plugin.Ranges...))...)
	}
	if f.six {
		sets = append(sets, nft.Set{Name: askingSet, Key: nftables.TypeIFName, Room: mostLinks, Lasts: time.Minute})
		sets = append(sets, nft.Set{Name: linksSet, Key: nftables.TypeIFName, Elements: interfaces(host.links6)})
	}
	for _, t := range tenants {
		sets = append(sets, f.addresses(t.guests(), t.Guests...), f.addresses(t.home(), t.Home...))
		if f.shares(t) {
			sets = append(sets, f.addresses(t.aliases(), t.Aliases...), portsOf(t))
		}
	}
	return sets
}

// shares reports whether a tenant reaches pods of the owner's; by IPv4 alone.
func (f family) shares(t Tenant) bool { return len(t.Shared) > 0 && !f.six }

// portsOf is the set of what a tenant reaches of the owner's pods: ADDRESS . PROTOCOL . PORT, each part in four bytes.
func portsOf(t Tenant) nft.Set {
	set := nft.Set{Name: t.shared(), Key: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService)}
	for _, s := range t.Shared {
		key := slices.Concat(s.Pod.AsSlice(), []byte{s.Protocol, 0, 0, 0}, []byte{byte(s.Port >> 8), byte(s.Port), 0, 0})
		set.Elements = append(set.Elements, nftables.SetElement{Key: key})
	}
	return set
}

func (t Tenant) chain() string  { return "tenant-" + t.Consumer }
func (t Tenant) guests() string { return "guests-" + t.Consumer }
func (t Tenant) home() string   { return "home-" + t.Consumer }

// Sets of tenants with whom pods are shared.
func (t Tenant) aliases() string { return "aliases-" + t.Consumer }
func (t Tenant) shared() string  { return "shared-" + t.Consumer }

// settled gives the tenants sorted, with addresses of the family only, and without addresses that two of them claim: neither gets those.
func (f family) settled(tenants []Tenant) (settled []Tenant, lost []netip.Prefix) {
	type claim struct {
		of     int // index of the tenant
		guests netip.Prefix
		lost   bool
	}
	tenants = slices.SortedFunc(slices.Values(tenants), func(a, b Tenant) int { return strings.Compare(a.Consumer, b.Consumer) })
	var all []claim
	for i, t := range tenants {
		for _, g := range t.Guests {
			if f.has(g) {
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
		if c.lost {
			lost = append(lost, c.guests)
		} else {
			tenants[c.of].Guests = append(tenants[c.of].Guests, c.guests)
		}
	}
	return tenants, lost
}

func single(list []netip.Addr) (out []netip.Prefix) {
	for _, a := range list {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

func interfaces(names []string) (out []nftables.SetElement) {
	names = slices.Sorted(slices.Values(names))
	for _, n := range slices.Compact(names) {
		out = append(out, nftables.SetElement{Key: nft.Ifname(n)})
	}
	return out
}
