//go:build linux

package fence

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Limits is the name of the nftables table that bounds how many connections a peer's guests, and its home through the
// tunnel, open. It is a table of its own because it remembers: the fence's is replaced whenever a peering changes, and who
// changed his would begin to count anew.
const Limits = "kith-limits"

// allowance is what a peer may open, its guests here and its home together; UDP and ICMP count as conntrack counts them.
type allowance struct {
	open        uint32 // at once
	rate, burst uint32 // new ones a second, and at once after a rest
	all, allAt  uint32 // the same for all peers together
	unknown     uint32 // the same for all guests that nobody knows yet: they may ask DNS
	unknownAt   uint32
}

// The kernel's table has 262 144 places, or 65 536 with 4 GB of memory or less (nf_conntrack_init_start). A connection that was
// closed keeps its place for two minutes, in which it is not counted as open: the rate bounds those. So a peer that does its
// worst holds 8192 + 200/s × 120 s + 2000 places. An application that keeps its connections, or opens a hundred a second,
// never meets this.
var allowed = allowance{open: 8192, rate: 200, burst: 2000, all: 500, allAt: 4000, unknown: 50, unknownAt: 500}

// buckets say whose a connection is: by the address of a guest here, whether it opens the connection or its home does through the
// tunnel, else by that of our guest at a provider. Each peer has a chain, which remembers.
type buckets struct {
	peers          []string
	guests, abroad []nftables.SetElement
}

func bucketsOf(tenants []Tenant, providers []Provider) (b buckets) {
	for _, t := range tenants {
		b.peers, b.guests = append(b.peers, t.Consumer), append(b.guests, leading(spans(t.Guests), expr.VerdictGoto, bucketOf(t.Consumer))...)
	}
	for _, p := range providers {
		b.peers = append(b.peers, p.Peer)
		b.abroad = append(b.abroad, leading(spans([]netip.Prefix{p.Guests}), expr.VerdictGoto, bucketOf(p.Peer))...)
	}
	slices.Sort(b.peers)
	b.peers = slices.Compact(b.peers)
	return b
}

func bucketOf(peer string) string { return "peer-" + peer }

// limit has the table be there with these buckets: made anew if nothing was, else only what changed.
func (k kernel) limit(cfg Config, a allowance, was *buckets, is buckets) error {
	if was != nil && reflect.DeepEqual(*was, is) {
		return nil
	}
	c, err := k.open()
	if err != nil {
		return err
	}
	t := &nftables.Table{Name: Limits, Family: nftables.TableFamilyIPv4}
	maps := []set{{name: guestsSet, key: nftables.TypeIPAddr, verdicts: true}, {name: abroadSet, key: nftables.TypeIPAddr, verdicts: true}}
	var chains []chain
	if was == nil {
		was = &buckets{}
		c.AddTable(t)
		c.DelTable(t)
		c.AddTable(t)
		for _, s := range maps {
			if err := c.AddSet(s.of(t), nil); err != nil {
				return err
			}
		}
		chains = cfg.limits(a)
	}
	for _, peer := range is.peers {
		if !slices.Contains(was.peers, peer) {
			chains = append(chains, a.bucket(peer))
		}
	}
	for _, ch := range chains {
		c.AddChain(ch.of(t))
	}
	for _, ch := range chains {
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: ch.of(t), Exprs: r})
		}
	}
	for i, elements := range [][]nftables.SetElement{is.guests, is.abroad} {
		c.FlushSet(maps[i].of(t))
		if err := c.SetAddElements(maps[i].of(t), elements); err != nil {
			return err
		}
	}
	for _, peer := range was.peers {
		if !slices.Contains(is.peers, peer) {
			ch := chain{name: bucketOf(peer)}.of(t)
			c.FlushChain(ch)
			c.DelChain(ch)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", Limits, err)
	}
	return nil
}

// limits are asked for the first packet of a connection, behind conntrack and the check for forged sources. What is dropped
// here takes no place in the kernel's table.
func (c Config) limits(a allowance) []chain {
	guest := decides(source(), guestsSet)
	if c.Group != 0 {
		guest = rule(fromGroup(c.Group), goTo("guest"))
	}
	return []chain{
		{name: "all", rules: [][]expr.Any{rule(beyond(a.all, a.allAt), drop())}},
		{name: "guest", rules: [][]expr.Any{decides(source(), guestsSet), rule(beyond(a.unknown, a.unknownAt), drop())}},
		{name: "first", hook: nftables.ChainHookPrerouting, priority: *nftables.ChainPriorityMangle, rules: [][]expr.Any{
			rule(unconfirmed(), guest),
			rule(unconfirmed(), from(c.Tunnel), decides(destination(), guestsSet)),
			rule(unconfirmed(), from(c.Tunnel), decides(source(), abroadSet)),
		}},
	}
}

// bucket is the chain of a peer. The rate comes first, for it costs least.
func (a allowance) bucket(peer string) chain {
	return chain{name: bucketOf(peer), rules: [][]expr.Any{
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
