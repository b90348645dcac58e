package datapath

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"

	"kith.dev/core/netplan"
)

// Table is what the data path knows: a value, built from the peers and swapped as a whole, never changed.
type Table struct {
	spans []span // the peers' aliases here, sorted, disjoint
	self  uint32 // our own address on the tunnel device
	port  uint16 // our UDP port
	host  []zone // addresses of this host inside our ranges
	lan   []zone // parts of our ranges that are really a network this host is attached to
	open  []uint16
}

// span is a range of aliases and whose it is.
type span struct {
	first, last uint32
	to          *tunnel
}

// tunnel is one peer as the data path sees it.
type tunnel struct {
	out     []rule       // our ranges, real → the alias at that peer; by source
	in      []rule       // the same backwards; by destination
	gateway uint32       // our own address as that peer sees it; 0 when it does not
	mss     uint16       // the largest TCP segment that fits the path
	up      *atomic.Bool // as it was at the last look
}

type zone struct{ net, mask uint32 }

// rule moves an address from one prefix to another.
type rule struct {
	from, to, mask uint32
	delta          uint16 // of the checksums, the same for each address
}

// Host is what the table has to know of this host.
type Host struct {
	Self netip.Addr     // our own address on the tunnel device
	Port uint16         // UDP, of WireGuard
	Own  []netip.Prefix // what the kernel delivers to this host
	LAN  []netip.Prefix // networks it is attached to
	Open []uint16       // TCP ports of this host that peers may connect to
}

// Peer is where a peer's packets come from and go to.
type Peer struct {
	netplan.Pair
	MTU int          // of the way to it
	Up  *atomic.Bool // as its tunnel was at the last look
}

// New expects peers that were validated.
func New(h Host, peers []Peer) *Table {
	t := &Table{self: netplan.Number(h.Self), port: h.Port, open: slices.Clone(h.Open)}
	var ours []netip.Prefix
	for _, p := range peers {
		tn := &tunnel{mss: uint16(p.MTU - 40), up: p.Up} // IPv4 and TCP without options
		for _, m := range p.Ours {
			tn.out = append(tn.out, newRule(m.Real, m.Alias))
			tn.in = append(tn.in, newRule(m.Alias, m.Real))
			ours = append(ours, m.Real)
		}
		if a, ok := p.There(h.Self); ok {
			tn.gateway = netplan.Number(a)
		}
		for _, m := range p.Theirs {
			t.spans = append(t.spans, span{netplan.Number(m.Alias.Addr()), netplan.Number(netplan.Last(m.Alias)), tn})
		}
	}
	slices.SortFunc(t.spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	t.host, t.lan = zonesWithin(h.Own, ours), zonesWithin(h.LAN, ours)
	return t
}

func newRule(from, to netip.Prefix) rule {
	f, d := netplan.Number(from.Addr()), netplan.Number(to.Addr())
	return rule{from: f, to: d, mask: netplan.Mask(from), delta: deltaOf(f, d)}
}

// zonesWithin keeps the prefixes that a peer's packet can reach at all, so that the data path checks few.
func zonesWithin(ps, ours []netip.Prefix) (out []zone) {
	for _, p := range ps {
		if !p.Addr().Is4() || !slices.ContainsFunc(ours, p.Overlaps) {
			continue
		}
		z := zone{net: netplan.Number(p.Masked().Addr()), mask: netplan.Mask(p)}
		if !slices.Contains(out, z) {
			out = append(out, z)
		}
	}
	return out
}

// find returns the peer that an address belongs to here, or nil.
func (t *Table) find(a uint32) *tunnel {
	lo, hi := 0, len(t.spans)
	for lo < hi { // the first span that ends at a or later
		if mid := int(uint(lo+hi) >> 1); t.spans[mid].last < a {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(t.spans) && t.spans[lo].first <= a {
		return t.spans[lo].to
	}
	return nil
}

// match returns the rule for an address. The ranges of one peer are disjoint and few.
func match(rules []rule, a uint32) *rule {
	for i := range rules {
		if r := &rules[i]; a&r.mask == r.from {
			return r
		}
	}
	return nil
}

func (r *rule) apply(a uint32) uint32 { return r.to | a&^r.mask }

func within(zs []zone, a uint32) bool {
	return slices.ContainsFunc(zs, func(z zone) bool { return a&z.mask == z.net })
}
