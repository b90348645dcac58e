//go:build linux

package fence

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/netplan"
)

// hostState is what the fence follows of the host.
type hostState struct {
	links   map[string][]netip.Addr // addresses by the UID of the guest at the other end of a marked link
	routers []netip.Addr            // the next hops of default routes
	uplinks []string                // devices of default routes without a next hop, such as a VPN's
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

// set holds addresses, ranges, names of interfaces, or a map from addresses to chains. Its elements are sorted.
type set struct {
	name     string
	key      nftables.SetDatatype
	ranges   bool
	verdicts bool
	elements []nftables.SetElement
}

// Names of the chains and sets that are always there.
const (
	guestsSet  = "guests"  // every guest's address
	tenantsMap = "tenants" // the chain that says what a guest may reach, by its address
	routersSet = "routers"
	uplinksSet = "uplinks"
	abroadSet  = "abroad"      // ranges of our providers
	ownSet     = "abroad-pods" // the owner's pods there
	closedSet  = "closed"      // ranges that are not the internet
	homesSet   = "homes"       // peers' ranges
	linkedSet  = "linked"      // those of all peers with a contract, in either role
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
	tenants := slices.Clone(rel.Tenants)
	slices.SortFunc(tenants, func(a, b Tenant) int { return bytes.Compare([]byte(a.Consumer), []byte(b.Consumer)) })
	owner := map[netip.Addr]string{}
	for _, t := range tenants {
		for _, g := range t.Guests {
			for _, a := range cfg.addresses(g, host) {
				if other, taken := owner[a]; taken && other != t.Consumer {
					owner[a] = "" // two tenants claim it: nobody's, until that is settled
					continue
				}
				owner[a] = t.Consumer
			}
		}
	}
	var abroad []netip.Prefix
	var own []netip.Addr
	for _, at := range rel.Providers {
		abroad, own = append(abroad, at.Ranges...), append(own, at.Pods...)
	}
	homes := rel.homes()
	var linked []netip.Prefix
	for _, h := range homes {
		linked = append(linked, h.ranges...)
	}
	p := plan{sets: []set{
		{name: guestsSet, key: nftables.TypeIPAddr, elements: addresses(slices.Collect(maps.Keys(owner)))},
		{name: tenantsMap, key: nftables.TypeIPAddr, verdicts: true},
		{name: routersSet, key: nftables.TypeIPAddr, elements: addresses(host.routers)},
		{name: uplinksSet, key: nftables.TypeIFName, elements: interfaces(host.uplinks)},
		{name: abroadSet, key: nftables.TypeIPAddr, ranges: true, elements: spans(abroad)},
		{name: ownSet, key: nftables.TypeIPAddr, elements: addresses(own)},
		{name: linkedSet, key: nftables.TypeIPAddr, ranges: true, elements: spans(linked)},
		{name: closedSet, key: nftables.TypeIPAddr, ranges: true, elements: spans(append(slices.Clone(private), cfg.Pods, cfg.Services))},
	}}
	for _, t := range tenants {
		var own []netip.Addr
		for a, consumer := range owner {
			if consumer == t.Consumer {
				own = append(own, a)
			}
		}
		p.sets = append(p.sets,
			set{name: t.guests(), key: nftables.TypeIPAddr, elements: addresses(own)})
		for _, e := range addresses(own) {
			e.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: t.chain()}
			p.sets[1].elements = append(p.sets[1].elements, e)
		}
	}
	slices.SortFunc(p.sets[1].elements, byKey)
	for _, h := range homes {
		p.sets = append(p.sets, set{name: homeSet(h.peer), key: nftables.TypeIPAddr, ranges: true, elements: spans(h.ranges)})
	}
	p.chains, p.buckets = cfg.chains(tenants, homes), bucketsOf(owner, homes)
	return p
}

func (t Tenant) chain() string  { return "tenant-" + t.Consumer }
func (t Tenant) guests() string { return "guests-" + t.Consumer }

// homeSet names the set of a peer's ranges.
func homeSet(peer string) string { return "home-" + peer }

// addresses of a guest. With marked links they come from the kernel; what a status says may lag, and names the
// node's own address for a pod of the host's network.
func (c Config) addresses(g Guest, host hostState) (list []netip.Addr) {
	all := g.Addresses
	if c.Group != 0 {
		all = host.links[g.UID]
	}
	for _, a := range all {
		if a = a.Unmap(); a.Is4() && c.Pods.Contains(a) && a != c.Node {
			list = append(list, a)
		}
	}
	return list
}

func byKey(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) }

func addresses(list []netip.Addr) (out []nftables.SetElement) {
	list = slices.Clone(list)
	slices.SortFunc(list, netip.Addr.Compare)
	for _, a := range slices.Compact(list) {
		if a.Is4() {
			out = append(out, nftables.SetElement{Key: a.AsSlice()})
		}
	}
	return out
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
