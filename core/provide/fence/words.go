//go:build linux

package fence

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/nft"
)

// More words for rules, beside those of nft; the comment is what `nft` calls it.

var (
	rule, accept, drop = nft.Rule, nft.Accept, nft.Drop
)

// oifname NAME
func to(name string) []expr.Any {
	return nft.Load(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, nft.Equal(nft.Ifname(name)))
}

// oifname @SET
func toIn(set string) []expr.Any {
	return nft.Load(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, in(set))
}

func in(set string) expr.Any { return &expr.Lookup{SourceRegister: 1, SetName: set} }

// FIELD @SET
func is(field expr.Any, set string) []expr.Any { return nft.Load(field, in(set)) }

// FIELD != @SET
func isNot(field expr.Any, set string) []expr.Any {
	return nft.Load(field, &expr.Lookup{SourceRegister: 1, SetName: set, Invert: true})
}

// FIELD vmap @MAP
func decides(field expr.Any, verdicts string) []expr.Any {
	return nft.Load(field, &expr.Lookup{SourceRegister: 1, SetName: verdicts, IsDestRegSet: true, DestRegister: 0})
}

// fib saddr . iif oif 0: the way back to the source is not the interface that the packet came by.
func sourceForged() []expr.Any {
	return nft.Load(&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true}, nft.Equal(make([]byte, 4)))
}

// ct state STATE, ct status STATUS
func tracked(key expr.CtKey, bits uint32) []expr.Any { return trackedAs(key, bits, expr.CmpOpNeq) }

// trackedAs is tracked with another comparison of the bits with 0.
func trackedAs(key expr.CtKey, bits uint32, to0 expr.CmpOp) []expr.Any {
	return nft.Load(&expr.Ct{Key: key, Register: 1},
		nft.Masked(binaryutil.NativeEndian.PutUint32(bits), nil), &expr.Cmp{Op: to0, Register: 1, Data: make([]byte, 4)})
}

const (
	statusDNAT      = 1 << 5 // IPS_DST_NAT
	adminForbidden  = 13     // ICMP_PKT_FILTERED, RFC 1812 5.2.7.1
	adminForbidden6 = 1      // ICMPV6_ADM_PROHIBITED, RFC 4443 3.1
)

// ct state established ct direction reply accept
func acceptAnswers() []expr.Any {
	return rule(tracked(expr.CtKeySTATE, expr.CtStateBitESTABLISHED), nft.Direction(nft.Reply), accept())
}

// ct status dnat: asked for as something else, a service or a port of this host.
func translated() []expr.Any { return tracked(expr.CtKeySTATUS, statusDNAT) }

// ct original ip daddr PREFIX, ct original ip6 daddr PREFIX: the family is the table's
func askedWithin(p netip.Prefix) []expr.Any {
	return nft.Load(&expr.Ct{Key: expr.CtKeyDST, Register: 1, Direction: nft.Original}, nft.Within(p)...)
}

// meta l4proto P ct status dnat ct original ip daddr ADDRESS ct original proto-dst PORT
func askedFor(p byte, a netip.Addr, port uint16) []expr.Any {
	return rule(nft.Protocol(p), translated(),
		nft.Load(&expr.Ct{Key: expr.CtKeyDST, Register: 1, Direction: nft.Original}, nft.Equal(a.AsSlice())),
		nft.Load(&expr.Ct{Key: expr.CtKeyPROTODST, Register: 1, Direction: nft.Original}, nft.Equal(binary.BigEndian.AppendUint16(nil, port))))
}

func goTo(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}
}

// counter reject with tcp reset: whoever is not there is not waited for. In the name of the address that was asked for, it finds the way
// to a home; an ICMP error of this host to an address of a home would go to its own pod of that address.
func reset() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}
}
