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

// speakAsGateway gives an ICMP error of one of our routers, whose address a peer does not know, the gateway's own. Without it
// traceroute shows a hole and path MTU discovery fails: uploads hang. Only errors about packets that were sent to our ranges qualify.
func (t *Table) speakAsGateway(p []byte, ihl int, src uint32) bool {
	if icmpKind(p, ihl) != icmpError {
		return false
	}
	q, _, ok := quoted(p, ihl)
	if !ok || !within(t.pods, binary.BigEndian.Uint32(q[atDestination:])) {
		return false
	}
	binary.BigEndian.PutUint32(p[atSource:], t.self)
	adjust(p, 10, deltaOf(src, t.self)) // ICMP's own checksum does not cover the addresses
	return true
}
