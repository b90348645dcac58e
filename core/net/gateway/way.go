package gateway

import (
	"net/netip"
	"slices"
	"time"
)

// Way is how packets get to a peer, one of a closed set.
type Way string

// The ways.
const (
	WayDirect  Way = "direct"  // by UDP, to where the peer is said to be, or as it came
	WayMapped  Way = "mapped"  // by UDP, to a port that one of the two had its router map
	WayPunched Way = "punched" // by UDP, through the routers or firewalls of two of whom neither lets the other begin
	WayCarried Way = "carried" // over a connection (Carry)
)

// Reason is why packets are carried and do not go by UDP, one of a closed set.
type Reason string

// The reasons.
const (
	ReasonTrying       Reason = "Trying"       // UDP is being tried since a moment ago
	ReasonNotSeen      Reason = "NotSeen"      // nobody said at which address the peer is seen
	ReasonOtherNetwork Reason = "OtherNetwork" // it is seen at addresses of a private network alone, which this host is not in
	ReasonSameRouter   Reason = "SameRouter"   // both are seen at one address: their router does not lead back in
	ReasonNewPorts     Reason = "NewPorts"     // a router takes another port for each address: others saw one host at several ports
	ReasonNoAnswer     Reason = "NoAnswer"     // none of what was sent by UDP came through
	ReasonStopped      Reason = "Stopped"      // UDP led there, and does not any more
)

// Carriage is what a connection that carries packets is, and what is known when it begins (Carry).
type Carriage struct {
	By    string           // who passes it on, for people: the peer itself, when it called back; "" where nobody does
	Seen  []netip.AddrPort // where others saw this cluster's WireGuard, for the peer to try
	Keep  bool             // also while it is of no use, to be there when UDP is shut again; else it ends then, after some minutes
	First bool             // the one of the two with the lower ID made it
	// Mapped is the endpoint that this host's router maps to its WireGuard; the zero value while there is none. May be nil.
	Mapped func() netip.AddrPort
}

func (c Carriage) mapped() netip.AddrPort {
	if c.Mapped == nil {
		return netip.AddrPort{}
	}
	return c.Mapped()
}

// meeting is what two tell each other of where their WireGuard is, and what came of it.
type meeting struct {
	began   time.Time
	seen    []netip.AddrPort // this cluster's
	told    []netip.AddrPort // the peer's, those that may be tried
	mapped  []netip.AddrPort // of those, that a router maps
	others  bool             // some were of another's private network
	stopped bool             // UDP led there before
}

// trying is how long UDP is tried before it is said that it does not lead there: the greetings, and two tries.
const trying = 8 * time.Second

// reason is why UDP does not lead to the peer, as far as it can be known from here.
func (m meeting) reason(now time.Time, known netip.AddrPort) Reason {
	told := m.told
	if known.IsValid() {
		told = append(slices.Clone(told), known)
	}
	same := func(e netip.AddrPort) bool {
		return slices.ContainsFunc(m.seen, func(s netip.AddrPort) bool { return s.Addr() == e.Addr() })
	}
	switch {
	case m.stopped:
		return ReasonStopped
	case now.Sub(m.began) < trying:
		return ReasonTrying
	case len(told) == 0 && m.others:
		return ReasonOtherNetwork
	case len(told) == 0:
		return ReasonNotSeen
	case slices.ContainsFunc(m.told, same):
		return ReasonSameRouter
	case newPorts(m.seen), newPorts(m.told):
		return ReasonNewPorts
	}
	return ReasonNoAnswer
}

// newPorts reports whether one address was seen at several ports.
func newPorts(seen []netip.AddrPort) bool {
	for i, a := range seen {
		if slices.ContainsFunc(seen[:i], func(b netip.AddrPort) bool { return a.Addr() == b.Addr() && a.Port() != b.Port() }) {
			return true
		}
	}
	return false
}

// found is a way by UDP that a carrier led to, which stays when the carrier ends.
type found struct {
	at  netip.AddrPort
	way Way
}

// fillWay says how packets get to the peer. Callers hold mu; the endpoint is still the one that WireGuard has.
func (r *route) fillWay(s *Stats, now time.Time) {
	c := r.carrier
	if c != nil {
		s.Carrier, s.Carried = true, s.Endpoint == c.at
	}
	switch {
	case s.Carried:
		s.Way, s.By, s.Reason = WayCarried, c.By, c.meeting().reason(now, r.Endpoint)
		return
	case c != nil && s.Endpoint.IsValid() && s.Endpoint != r.Endpoint:
		r.found = found{s.Endpoint, c.meeting().wayTo(s.Endpoint, c.mapped())}
	}
	s.Way = WayDirect
	if s.Endpoint == r.found.at && s.Endpoint != r.Endpoint {
		s.Way = r.found.way
	}
}

// wayTo is by which way an endpoint was found; own is what this host's router maps.
func (m meeting) wayTo(at, own netip.AddrPort) Way {
	if own.IsValid() || slices.Contains(m.mapped, at) {
		return WayMapped
	}
	return WayPunched
}
