package datapath

import (
	"encoding/binary"
	"net/netip"

	"kith.dev/core/net/netplan"
)

// Where guests here get their addresses from somebody else, the network plugin of a cluster that Kith does not run, both addresses
// of a packet are moved from prefix to prefix here, and nobody else knows: its home calls a guest by an address of the pair's
// range, and the guest calls its home by aliases.

// rule moves an address from one prefix to another.
type rule struct {
	from, to, mask uint32
	delta          uint16 // of the checksums, the same for each address
}

func newRule(from, to netip.Prefix) rule {
	f, d := netplan.Number(from.Addr()), netplan.Number(to.Addr())
	return rule{from: f, to: d, mask: netplan.Mask(from), delta: deltaOf(f, d)}
}

func (r *rule) has(a uint32) bool { return a&r.mask == r.from }

func (r *rule) apply(a uint32) uint32 { return r.to | a&^r.mask }

// share has the peer reach pods of ours by addresses of the range for its guests.
func (tn *tunnel) share(pods []netplan.Shared) {
	if len(pods) == 0 {
		return
	}
	tn.shared, tn.sharers = make(map[uint32]*rule, len(pods)), make(map[uint32]*rule, len(pods))
	for _, s := range pods {
		as, own := netip.PrefixFrom(s.As, 32), netip.PrefixFrom(s.Pod, 32)
		there, back := newRule(as, own), newRule(own, as)
		tn.shared[there.from], tn.sharers[back.from] = &there, &back
	}
}

// match returns the rule for an address. The ranges of one peer are disjoint and few.
func match(rules []rule, a uint32) *rule {
	for i := range rules {
		if rules[i].has(a) {
			return &rules[i]
		}
	}
	return nil
}

// move rewrites both addresses of a packet, and those of the packet that an ICMP error quotes, which went the other way.
func move(p []byte, ihl int, source, destination *rule) {
	source.rewrite(p, ihl, atSource)
	destination.rewrite(p, ihl, atDestination)
	if icmpKind(p, ihl) == icmpError {
		source.rewriteInner(p, ihl, atDestination)
		destination.rewriteInner(p, ihl, atSource)
	}
}

// rewrite moves the address at offset at of the header and brings the checksums along.
func (r *rule) rewrite(p []byte, ihl, at int) {
	if r.from == r.to {
		return
	}
	binary.BigEndian.PutUint32(p[at:], r.apply(binary.BigEndian.Uint32(p[at:])))
	adjust(p, 10, r.delta)
	if sum, ok := transportSum(p, ihl); ok {
		adjustTransport(p, sum, r.delta)
	}
}

// rewriteInner moves the address at offset at of the header that an ICMP error quotes, if it is one of the rule's.
//
// The quoted IP header's checksum changes by just as much as its address does, so both cancel in the ICMP checksum. Only a change of
// the quoted transport checksum has to be carried into it.
func (r *rule) rewriteInner(p []byte, ihl, at int) {
	q, qihl, ok := quoted(p, ihl)
	if !ok {
		return
	}
	a := binary.BigEndian.Uint32(q[at:])
	if !r.has(a) || r.from == r.to {
		return
	}
	binary.BigEndian.PutUint32(q[at:], r.apply(a))
	adjust(q, 10, r.delta)
	sum, ok := transportSum(q, qihl)
	if !ok {
		return
	}
	old := binary.BigEndian.Uint16(q[sum:])
	adjustTransport(q, sum, r.delta)
	adjust(p, ihl+2, delta16(old, binary.BigEndian.Uint16(q[sum:])))
}
