//go:build linux

package fence

import (
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"kith.dev/core/net/nft"
)

// allowance is what a peer may open, its guests here and its home together; UDP and ICMP count as conntrack counts them.
type allowance struct {
	open        uint32 // at once
	rate, burst uint32 // new ones a second, and at once after a rest
	all, allAt  uint32 // the same for all peers together
	each        uint32 // a guest alone may have open
	eachRate    uint32 // and open a second, and at once after a rest
	eachAt      uint32
	unknown     uint32 // the same for all guests whose address is not known yet: they may use DNS
	unknownAt   uint32
}

// The kernel's table has 262 144 places, or 65 536 with 4 GB of memory or less (nf_conntrack_init_start). A connection that was
// closed keeps its place for two minutes, in which it is not counted as open: the rate bounds those. So a peer that does its
// worst holds 8192 + 200/s × 120 s + 2000 places. An application that keeps its connections, or opens a hundred a second,
// never meets this.
var allowed = allowance{open: 8192, rate: 200, burst: 2000, all: 500, allAt: 4000, each: 4096, eachRate: 150, eachAt: 1500, unknown: 50, unknownAt: 500}

// limits makes the table that counts connections by peer: by the address of a guest here, whether the guest or, through the tunnel, its home
// opens the connection; else by that of our guest at a provider. Each peer has a chain with its counters. It sees the first packet of a
// connection, after conntrack and the check for forged sources. A connection dropped here takes no place in the conntrack table.
//
// One guest may use only a part of its peer's limit, so that the peer's other guests have room.
func (f family) limits(a allowance, tenants []Tenant, providers []Provider, closed []netip.Prefix) nft.Table {
	guest := is(f.source(), eachSet)
	if f.Group != 0 {
		guest = nft.FromGroup(f.Group)
	}
	chains := []nft.Chain{
		{Name: "all", Rules: [][]expr.Any{rule(beyond(a.all, a.allAt), drop())}},
		{Name: "guest", Rules: [][]expr.Any{
			rule(nft.MostOf(f.source(), eachRateSet, beyond(a.eachRate, a.eachAt)[0]), drop()),
			rule(nft.MostOf(f.source(), eachOpenSet, &expr.Connlimit{Count: a.each, Flags: expr.NFT_CONNLIMIT_F_INV}), drop()),
			decides(f.source(), guestsSet), rule(beyond(a.unknown, a.unknownAt), drop()),
		}},
		{Name: "first", Hook: nftables.ChainHookPrerouting, Priority: *nftables.ChainPriorityMangle, Rules: [][]expr.Any{
			rule(unconfirmed(), guest, goTo("guest")),
			rule(unconfirmed(), nft.From(f.Tunnel), decides(f.destination(), guestsSet)),
			rule(unconfirmed(), nft.From(f.Tunnel), decides(f.source(), abroadSet)),
		}},
	}
	var peers []string
	var guests, abroad []nftables.SetElement
	each := closed
	for _, t := range tenants {
		each = slices.Concat(each, t.Guests)
		peers, guests = append(peers, t.Consumer), append(guests, f.leading(t.Guests, expr.VerdictGoto, bucketOf(t.Consumer))...)
	}
	for _, p := range providers {
		peers, abroad = append(peers, p.Peer), append(abroad, f.leading([]netip.Prefix{f.of(p)}, expr.VerdictGoto, bucketOf(p.Peer))...)
	}
	slices.Sort(peers)
	for _, peer := range slices.Compact(peers) {
		chains = append(chains, a.bucket(peer))
	}
	return nft.Table{Family: f.table, Chains: chains, Sets: []nft.Set{
		{Name: guestsSet, Key: f.key, Data: nftables.TypeVerdict, Elements: guests},
		{Name: abroadSet, Key: f.key, Data: nftables.TypeVerdict, Elements: abroad},
		f.addresses(eachSet, each...),
		{Name: eachRateSet, Key: f.key, Room: mostGuests, Lasts: time.Minute},
		{Name: eachOpenSet, Key: f.key, Room: mostGuests},
	}}
}

const (
	eachSet     = "each"      // addresses of guests
	eachRateSet = "each-rate" // those that opened connections
	eachOpenSet = "each-open"

	mostGuests = 16384 // of which a table remembers something
)

func bucketOf(peer string) string { return "peer-" + peer }

// bucket is the chain of a peer. The rate comes first, for it costs least.
func (a allowance) bucket(peer string) nft.Chain {
	return nft.Chain{Name: bucketOf(peer), Rules: [][]expr.Any{
		rule(beyond(a.rate, a.burst), drop()),
		// ct count over N
		rule([]expr.Any{&expr.Connlimit{Count: a.open, Flags: expr.NFT_CONNLIMIT_F_INV}}, drop()),
		goTo("all"),
	}}
}

// limit rate over RATE/second burst BURST packets
func beyond(rate, burst uint32) []expr.Any {
	return []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(rate), Unit: expr.LimitTimeSecond, Burst: burst, Over: true}}
}

// ct state new ct status & confirmed == 0: the connection has no place in the table yet. A UDP stream that nobody answers
// is new for as long as it lasts.
func unconfirmed() []expr.Any {
	const confirmed = 1 << 3 // IPS_CONFIRMED
	return rule(tracked(expr.CtKeySTATE, expr.CtStateBitNEW), trackedAs(expr.CtKeySTATUS, confirmed, expr.CmpOpEq))
}
