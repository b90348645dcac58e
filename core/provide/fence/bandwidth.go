//go:build linux

package fence

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/netplan"
	"kith.dev/core/net/nft"
)

const (
	sendersSet   = "senders" // addresses of guests, each with the chain of what it sends
	receiversSet = "receivers"

	// burst is what passes at once beside a second's worth, which the kernel lets pass in any case (nft_limit): segments that are put together
	// on their way, of 64 KiB, would else never pass a small bound.
	burst = 128 << 10
)

// bandwidth makes the table that bounds what guests get and send. It is one table for both families, so that both count to one bound, and it comes
// after the fence: what that refuses takes nothing of it. Each policy has a chain for each direction. What passes from guest to guest, and between
// guests and the owner's pods, stays on this machine, or on the lines between nodes, and is not bounded. What is beyond a bound is dropped, as by a
// router of a slow line, and sent again later. Guests on other nodes are bounded there.
func (c Config) bandwidth(four, six []Tenant) nft.Table {
	t := nft.Table{Family: nftables.TableFamilyINet}
	var stays, bounded [][]expr.Any
	if c.Group != 0 {
		stays = [][]expr.Any{rule(nft.From(netplan.Bridge), accept()), rule(to(netplan.Bridge), accept()), rule(nft.FromGroup(c.Group), nft.ToGroup(c.Group), accept())}
	} else {
		stays = [][]expr.Any{rule(ofFamily(unix.NFPROTO_IPV4), nft.SourceWithin(c.Pods), nft.DestinationWithin(c.Pods), accept())}
	}
	families := []struct {
		family
		tenants []Tenant
		number  byte
	}{{c.ipv4(), four, unix.NFPROTO_IPV4}, {c.ipv6(), six, unix.NFPROTO_IPV6}}
	for _, f := range families {
		of := map[bool]string{false: "", true: "6"}[f.six]
		senders := nft.Set{Name: sendersSet + of, Key: f.key, Data: nftables.TypeVerdict}
		receivers := nft.Set{Name: receiversSet + of, Key: f.key, Data: nftables.TypeVerdict}
		for _, tenant := range f.tenants {
			guests := slices.DeleteFunc(slices.Clone(tenant.Guests), func(g netip.Prefix) bool { return slices.Contains(tenant.Apart, g) })
			if tenant.Bounds.Egress > 0 {
				senders.Elements = append(senders.Elements, f.leading(guests, expr.VerdictGoto, tenant.Bounds.sends())...)
			}
			if tenant.Bounds.Ingress > 0 {
				receivers.Elements = append(receivers.Elements, f.leading(guests, expr.VerdictGoto, tenant.Bounds.receives())...)
			}
		}
		t.Sets = append(t.Sets, senders, receivers)
		bounded = append(bounded, rule(ofFamily(f.number), decides(f.source(), senders.Name)), rule(ofFamily(f.number), decides(f.destination(), receivers.Name)))
	}
	chains := map[string]nft.Chain{}
	for _, tenant := range slices.Concat(four, six) {
		if b := tenant.Bounds; b.Egress > 0 {
			chains[b.sends()] = nft.Chain{Name: b.sends(), Rules: beyondRate(b.Egress)}
		}
		if b := tenant.Bounds; b.Ingress > 0 {
			chains[b.receives()] = nft.Chain{Name: b.receives(), Rules: beyondRate(b.Ingress)}
		}
	}
	if len(chains) == 0 { // then no packet is looked at
		return t
	}
	t.Chains = append(t.Chains, nft.Chain{Name: "forward", Hook: nftables.ChainHookForward, Priority: *nftables.ChainPriorityFilter + 10, Rules: slices.Concat(stays, bounded)})
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		t.Chains = append(t.Chains, chains[name])
	}
	return t
}

// The chains of a policy. A name of the kernel's has two characters more than one of Kubernetes'.
func (b Bounds) sends() string    { return "s-" + b.Of }
func (b Bounds) receives() string { return "r-" + b.Of }

// limit rate over BYTES bytes/second burst BURST bytes counter drop
func beyondRate(bits uint64) [][]expr.Any {
	return [][]expr.Any{rule([]expr.Any{&expr.Limit{Type: expr.LimitTypePktBytes, Rate: bits / 8, Unit: expr.LimitTimeSecond, Burst: burst, Over: true}}, drop())}
}

// meta nfproto N
func ofFamily(number byte) []expr.Any {
	return nft.Load(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, nft.Equal([]byte{number}))
}

// bounded reports whether any tenant's guests are.
func (r Relations) bounded() bool {
	return slices.ContainsFunc(r.Tenants, func(t Tenant) bool { return t.Bounds != Bounds{} })
}
