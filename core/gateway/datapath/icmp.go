package datapath

import "encoding/binary"

const (
	icmpNone     = iota // not ICMP, or a later fragment
	icmpQuery           // echo and its like: no addresses inside
	icmpError           // quotes the packet it is about
	icmpRedirect        //
)

// icmpKind sorts ICMP messages (RFC 792). An error must be long enough to quote an IP header.
func icmpKind(p []byte, ihl int) int {
	if p[9] != protoICMP || fragmentOffset(p) != 0 || len(p) < ihl+8 {
		return icmpNone
	}
	switch p[ihl] {
	case 5:
		return icmpRedirect
	case 3, 4, 11, 12:
		if len(p) >= ihl+8+20 {
			return icmpError
		}
	}
	return icmpQuery
}

// quoted returns the packet inside an ICMP error and its header length; it may be cut off anywhere behind that.
func quoted(p []byte, ihl int) (q []byte, qihl int, ok bool) {
	q = p[ihl+8:]
	qihl = int(q[0]&15) * 4
	return q, qihl, q[0]>>4 == 4 && qihl >= 20 && qihl <= len(q)
}

// rewriteInner moves the address at offset at of the quoted header: going out that is the destination (the quoted
// packet came to us), coming in the source (it came from us).
//
// The quoted IP header's checksum changes by just as much as its address does, so both cancel in the ICMP
// checksum. Only a change of the quoted transport checksum has to be carried into it.
func rewriteInner(p []byte, ihl, at int, rules []rule) {
	q, qihl, ok := quoted(p, ihl)
	if !ok {
		return
	}
	a := binary.BigEndian.Uint32(q[at:])
	r := match(rules, a)
	if r == nil || r.from == r.to {
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

// speakAsGateway gives an ICMP error of one of our routers, whose address the peer does not know, the gateway's
// own. Without it traceroute shows a hole and path MTU discovery fails: uploads hang. Only errors about packets
// that were sent to our ranges qualify.
func (tn *tunnel) speakAsGateway(p []byte, ihl int, src uint32) bool {
	q, _, ok := quoted(p, ihl)
	if tn.gateway == 0 || !ok || match(tn.out, binary.BigEndian.Uint32(q[atDestination:])) == nil {
		return false
	}
	binary.BigEndian.PutUint32(p[atSource:], tn.gateway)
	adjust(p, 10, deltaOf(src, tn.gateway)) // ICMP's own checksum does not cover the addresses
	return true
}
