package datapath

import "sync/atomic"

// A Verdict says what becomes of a packet: zero passes it, everything else is the reason why it is dropped.
type Verdict uint8

const (
	Pass            Verdict = iota
	Malformed               // headers that do not hold together, or that lead elsewhere, as source routing
	dropIPv6                // of a family that we do not use with any peer, or in the other's place
	dropPeer                // leaving for an address that is no peer's
	dropSource              // leaving from an address that we do not show this peer
	dropSender              // arrived from an address that is no peer's
	dropDestination         // arrived for an address that we do not show this peer
	dropHost                // arrived for a service of this host that peers may not reach
	dropRedirect            // ICMP redirects have no meaning across a tunnel
	dropLoop                // our own tunnel's datagrams, routed into the tunnel
	dropNeighbour           // ICMPv6 that is for one link alone, such as a router's advertisement
	verdicts

	Taken Verdict = 255 // it was for the data path itself
)

var verdictNames = [verdicts]string{
	Pass: "passed", Malformed: "malformed", dropIPv6: "ipv6", dropPeer: "no_peer", dropSource: "source",
	dropSender: "sender", dropDestination: "destination", dropHost: "host", dropRedirect: "redirect", dropLoop: "loop", dropNeighbour: "neighbour",
}

// Drops counts packets by what became of them.
type Drops [verdicts]atomic.Uint64

// Add counts one.
func (d *Drops) Add(v Verdict) { d[v].Add(1) }

// ByReason lists all reasons, also those at zero, so that a metric exists before its first event.
func (d *Drops) ByReason() map[string]uint64 {
	out := make(map[string]uint64, verdicts-1)
	for v := Pass + 1; v < verdicts; v++ {
		out[verdictNames[v]] = d[v].Load()
	}
	return out
}
