package datapath

import (
	"net/netip"
	"slices"
	"sort"
	"sync/atomic"

	"kith.dev/core/net/netplan"
)

// Table is what the data path knows: a value, built from the peers and swapped as a whole, never changed.
type Table struct {
	spans   []span             // ranges of guests, and aliases; sorted, disjoint
	handles map[uint32]*tunnel // peers by what we call them inside WireGuard
	pods    []zone             // our own ranges
	self    uint32             // our own address on the tunnel device
	port    uint16             // our UDP port
	host    []zone             // addresses of this host that a peer's packet can have
	lan     []zone             // parts of our ranges that are really a network this host is attached to
	open    []uint16
	six     table6
	relays  bool // guests of somebody went on from here
}

// span is a range that leads to one peer, or comes from it.
type span struct {
	first, last uint32
	to          *tunnel
	kind        kind
	home        *tunnel // of relayed: whose guests they are
}

type kind uint8

const (
	there   kind = iota // our guests at the peer: packets for them go to it
	here                // its guests here: what they send goes to it
	alias               // its own range, by the name that translated guests here have for it
	relayed             // guests of a home, with addresses of its range here, that went on to the peer; without one to nobody
)

// tunnel is one peer as the data path sees it.
type tunnel struct {
	header   [Header]byte     // of what is sent to it, but for the length
	space    []zone           // the addresses it may speak for towards its guests here, and that these may ask for
	guests   *rule            // range of its guests → their addresses here; nil where they have them of the range
	real     []rule           // alias → its own range
	aliases  []rule           // the same backwards
	backward rule             // of guests
	shared   map[uint32]*rule // address that a pod of ours has there → its own; nil where guests have rules of their own
	sharers  map[uint32]*rule // backwards
	mtu      int              // the largest packet of a pod that fits the path
	mss      uint16           // and the TCP segment in it
	up       *atomic.Bool     // as it was at the last look
	six      tunnel6
	around   []*direct // ways past it to its guests elsewhere, for those here
	direct   *direct   // not nil: it is such a way, and no peer
	carried  *Carried  // nil of a direct way
	by       *tunnel   // not nil: it is a home that is reached by way of this peer, in whose session its packets are
	relays   bool      // some of its guests went on from here
}

type zone struct{ net, mask uint32 }

func zoneOf(p netip.Prefix) zone {
	return zone{netplan.Number(p.Masked().Addr()), netplan.Mask(p)}
}

func (z zone) has(a uint32) bool { return a&z.mask == z.net }

// Host is what the table has to know of this host.
type Host struct {
	Self  netip.Addr     // our own address on the tunnel device
	Self6 netip.Addr     // and of IPv6; none where this cluster has IPv4 alone
	Port  uint16         // UDP, of WireGuard
	Pods  []netip.Prefix // our own ranges, of both families
	Own   []netip.Prefix // what the kernel delivers to this host
	LAN   []netip.Prefix // networks it is attached to
	Open  []uint16       // TCP ports of this host that peers may connect to
}

// Peer is where a peer's packets come from and go to.
type Peer struct {
	ID string
	netplan.Pair
	MTU int          // of the way to it, for packets of pods
	Up  *atomic.Bool // as its tunnel was at the last look

	Carried *Carried // nil: nobody counts

	Direct []Direct // ways past it, each with a handle of its own
}

// New expects peers that were validated.
func New(h Host, peers []Peer) *Table {
	t := &Table{handles: make(map[uint32]*tunnel, len(peers)), self: netplan.Number(h.Self), port: h.Port, open: slices.Clone(h.Open)}
	reached := slices.Clone(h.Pods)
	tunnels := make(map[string]*tunnel, len(peers))
	for _, p := range peers {
		tn := &tunnel{header: headerOf(p.Called(), p.Handle()), mtu: p.MTU, mss: uint16(p.MTU - 40), up: p.Up, carried: p.Carried} // IPv4 and TCP without options
		t.handles[netplan.Number(p.Handle())] = tn
		tunnels[p.ID] = tn
		t.add(p.There, tn, there)
		for _, rest := range p.staying() {
			t.add(rest, tn, here)
		}
		for _, o := range p.Onward {
			home := &tunnel{header: tn.header, mtu: tn.mtu, mss: tn.mss, up: tn.up, by: tn, carried: tn.carried} // under one contract, with the peer
			for _, r := range o.Elsewhere() {
				home.space = append(home.space, zoneOf(r))
			}
			t.add(o.Guests, home, here)
			reached = append(reached, o.Network)
		}
		for _, r := range p.Space {
			tn.space = append(tn.space, zoneOf(r))
		}
		for _, m := range p.Aliases {
			t.add(m.Alias, tn, alias)
			tn.real, tn.aliases = append(tn.real, newRule(m.Alias, m.Real)), append(tn.aliases, newRule(m.Real, m.Alias))
		}
		if p.Guests.Real.IsValid() {
			r := newRule(p.Guests.Alias, p.Guests.Real)
			tn.guests, tn.backward = &r, newRule(p.Guests.Real, p.Guests.Alias)
		} else {
			tn.share(p.Shared)
		}
		if p.Here.IsValid() {
			reached = append(reached, p.Here)
		}
		for _, d := range p.Direct {
			t.addDirect(tn, d, p.MTU)
		}
	}
	t.relay(peers, tunnels)
	sort.Slice(t.spans, func(i, j int) bool { return t.spans[i].first < t.spans[j].first })
	for _, p := range h.Pods {
		if p.Addr().Is4() {
			t.pods = append(t.pods, zoneOf(p))
		}
	}
	t.host, t.lan = zonesWithin(h.Own, reached), zonesWithin(h.LAN, h.Pods)
	t.six.fill(h, peers, t.handles)
	return t
}

// staying is the range of the peer's guests here, less what went on.
func (p Peer) staying() []netip.Prefix {
	if !p.Here.IsValid() || len(p.Relayed) == 0 {
		return []netip.Prefix{p.Here}
	}
	var gone []netip.Prefix
	for _, r := range p.Relayed {
		gone = append(gone, r.Guests)
	}
	return netplan.Without(p.Here, gone...)
}

// relay has what went on lead to where it is.
func (t *Table) relay(peers []Peer, tunnels map[string]*tunnel) {
	for _, p := range peers {
		for _, r := range p.Relayed {
			home := tunnels[p.ID]
			home.relays, t.relays = true, true
			t.spans = append(t.spans, span{netplan.Number(r.Guests.Addr()), netplan.Number(netplan.Last(r.Guests)), tunnels[r.ID], relayed, home})
		}
	}
}

func (t *Table) add(p netip.Prefix, to *tunnel, k kind) {
	if p.IsValid() {
		t.spans = append(t.spans, span{netplan.Number(p.Addr()), netplan.Number(netplan.Last(p)), to, k, nil})
	}
}

// zonesWithin keeps the prefixes that a peer's packet can reach at all, so that the data path checks few.
func zonesWithin(ps, reached []netip.Prefix) (out []zone) {
	for _, p := range ps {
		if !p.Addr().Is4() || !slices.ContainsFunc(reached, p.Overlaps) {
			continue
		}
		if z := zoneOf(p); !slices.Contains(out, z) {
			out = append(out, z)
		}
	}
	return out
}

// find returns the range that an address is in, or nil.
func (t *Table) find(a uint32) *span {
	lo, hi := 0, len(t.spans)
	for lo < hi { // the first span that ends at a or later
		if mid := int(uint(lo+hi) >> 1); t.spans[mid].last < a {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(t.spans) && t.spans[lo].first <= a {
		return &t.spans[lo]
	}
	return nil
}

func within(zs []zone, a uint32) bool {
	for _, z := range zs {
		if z.has(a) {
			return true
		}
	}
	return false
}
