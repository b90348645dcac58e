package datapath

import (
	"encoding/binary"
	"slices"

	"kith.dev/core/net/netplan"
)

// firstUnprivileged is the first port that kube-proxy gives to what it masquerades: answers come to any from there on.
const firstUnprivileged = 1024

// fence decides whether a peer's packet may go to real, one of our addresses. Pods are open. Addresses of the host
// itself (the bridge, the node, the tunnel device) lie in the pods' range too: there only ICMP, what may be an answer to
// the host, and the listed TCP ports pass; our guests elsewhere also reach node ports, as our pods do: kube-proxy sends on what is
// for a service. A LAN that happens to lie inside our range is closed.
//
// No state is kept here: an answer is told from a question by TCP's flags, and with UDP by the port alone. core/provide/fence, behind, knows which
// connections there are and closes the rest.
func (t *Table) fence(p []byte, ihl int, real uint32, nodePorts bool) Verdict {
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
		port := binary.BigEndian.Uint16(l4[2:])
		if l4[13]&(syn|ack) == syn && !slices.Contains(t.open, port) && !(nodePorts && port >= netplan.FirstNodePort && port <= netplan.LastNodePort) {
			return dropHost
		}
		return Pass
	case p[9] == protoUDP && len(l4) >= 8:
		if binary.BigEndian.Uint16(l4[2:]) >= firstUnprivileged {
			return Pass
		}
	}
	return dropHost
}
