package datapath

import "encoding/binary"

// clampMSS lowers the segment size that a TCP SYN announces to what fits the tunnel, so that connections do not
// depend on path MTU discovery (RFC 9293, section 3.7.1). The packet keeps its length.
func clampMSS(p []byte, ihl int, mss uint16) {
	if p[9] == protoTCP && fragmentOffset(p) == 0 && len(p) >= ihl+24 {
		clampSegment(p[ihl:], mss)
	}
}

// clampSegment does so with a TCP header that has options.
func clampSegment(tcp []byte, mss uint16) {
	const fin, syn, rst = 1, 2, 4
	if tcp[13]&(fin|syn|rst) != syn {
		return
	}
	end := min(int(tcp[12]>>4)*4, len(tcp))
	const optEnd, optNop, optMSS = 0, 1, 2
	for i := 20; i < end; {
		switch tcp[i] {
		case optEnd:
			return
		case optNop:
			i++
			continue
		}
		if i+1 >= end {
			return
		}
		size := int(tcp[i+1])
		if size < 2 || i+size > end {
			return
		}
		if tcp[i] == optMSS && size == 4 {
			if old := binary.BigEndian.Uint16(tcp[i+2:]); old > mss {
				binary.BigEndian.PutUint16(tcp[i+2:], mss)
				adjust(tcp, 16, deltaAt(i+2, old, mss))
			}
			return
		}
		i += size
	}
}
