package datapath

import (
	"encoding/binary"
	"slices"
)

// firstEphemeral is where ports begin that are handed out to clients; below it are services.
const firstEphemeral = 32768

// fence decides whether a peer's packet may go to real, one of our addresses. Pods are open. Addresses of the host
// itself (the bridge, the node, the tunnel device) lie in the pods' range too: there only ICMP, answers to what
// the host asked, and the listed TCP ports pass. A LAN that happens to lie inside our range is closed.
//
// Answers are told from questions without keeping state: by TCP's flags and by UDP's port.
func (t *Table) fence(p []byte, ihl int, real uint32) Verdict {
	if len(t.lan) != 0 && within(t.lan, real) && !within(t.host, real) {
		return dropDestination
	}
	if !within(t.host, real) || p[9] == protoICMP {
		return Pass
	}
	l4 := p[ihl:]
	if off := fragmentOffset(p); off > 1 {
		return Pass // without a first fragment it becomes nothing
	} else if off == 1 {
		return dropHost // would overwrite the TCP flags checked below (RFC 1858)
	}
	switch {
	case p[9] == protoTCP && len(l4) >= 14:
		const syn, ack = 2, 16
		if l4[13]&(syn|ack) == syn && !slices.Contains(t.open, binary.BigEndian.Uint16(l4[2:])) {
			return dropHost
		}
		return Pass
	case p[9] == protoUDP && len(l4) >= 8 && binary.BigEndian.Uint16(l4[2:]) >= firstEphemeral:
		return Pass
	}
	return dropHost
}
