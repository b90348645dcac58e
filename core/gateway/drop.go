package gateway

import "sync/atomic"

// A verdict says what becomes of a packet: zero passes it, everything else is the reason why it is dropped.
type verdict uint8

const (
	pass            verdict = iota
	dropMalformed           // headers that do not hold together, or source routing
	dropIPv6                // not carried yet
	dropPeer                // leaving for an address that is no peer's
	dropSource              // leaving from an address that we do not show this peer
	dropSender              // arrived from an address that is no peer's
	dropDestination         // arrived for an address that we do not show this peer
	dropHost                // arrived for a service of this host, which is none of the peer's business
	dropRedirect            // ICMP redirects have no meaning across a tunnel
	dropLoop                // our own tunnel's datagrams, routed into the tunnel
	verdicts
)

var verdictNames = [verdicts]string{
	pass: "passed", dropMalformed: "malformed", dropIPv6: "ipv6", dropPeer: "no_peer", dropSource: "source",
	dropSender: "sender", dropDestination: "destination", dropHost: "host", dropRedirect: "redirect", dropLoop: "loop",
}

type drops [verdicts]atomic.Uint64

func (d *drops) add(v verdict) { d[v].Add(1) }

// byReason lists all reasons, also those at zero, so that a metric exists before its first event.
func (d *drops) byReason() map[string]uint64 {
	out := make(map[string]uint64, verdicts-1)
	for v := pass + 1; v < verdicts; v++ {
		out[verdictNames[v]] = d[v].Load()
	}
	return out
}
