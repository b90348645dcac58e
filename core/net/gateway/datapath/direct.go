package datapath

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
)

// Guests of one home at two of its providers meet by way of home. Where home introduced the two to each other, their gateways have a way of
// their own besides: WireGuard between them, for packets from the one range of guests to the other and nothing else. Addresses are the same
// on both ways, so each packet takes either by itself, and a connection does not notice which.

// Direct is such a way, from a home's guests here to those at another of its providers.
type Direct struct {
	Handle, Called  netip.Addr   // what we call the other provider inside WireGuard for this home, and what it calls us
	Guests, Guests6 netip.Prefix // of that home there; Guests6 is none without IPv6
	MTU             int          // of the way, for packets of pods
	*Way
}

// Way is what the data path and whoever keeps a direct way tell each other.
type Way struct {
	Up       atomic.Bool   // packets take it
	Answered atomic.Uint32 // the number of the question that was answered last
	Wake     func()        // called when it is wanted and was not since Wanted, when a question came, and when one was answered; it must not block
	wanted   atomic.Bool
	asked    atomic.Bool
}

// Wanted reports whether a packet took the way, or would have, since it was asked last.
func (w *Way) Wanted() bool { return w.wanted.Swap(false) }

// Asked reports whether the other gateway asked since it was asked last: the way from there to here is open.
func (w *Way) Asked() bool { return w.asked.Swap(false) }

func (w *Way) want() {
	if !w.wanted.Load() && !w.wanted.Swap(true) {
		w.Wake()
	}
}

// direct is a way in a table.
type direct struct {
	guests  zone
	guests6 zone6
	six     bool // guests6 is there
	home    *tunnel
	to      *tunnel
	way     *Way
}

// addDirect gives a home's tunnel a way.
func (t *Table) addDirect(home *tunnel, d Direct, mtu int) {
	mtu = min(mtu, d.MTU) // a segment fits both ways
	to := &tunnel{header: headerOf(d.Called, d.Handle), mtu: d.MTU, mss: uint16(mtu - 40), up: &d.Up}
	to.six = tunnel6{mtu: max(d.MTU, LeastMTU6), mss: uint16(mtu - 60)}
	to.direct = &direct{guests: zoneOf(d.Guests), home: home, to: to, way: d.Way}
	if to.direct.six = d.Guests6.IsValid(); to.direct.six {
		to.direct.guests6 = zone6Of(d.Guests6)
	}
	home.around = append(home.around, to.direct)
	t.handles[binary.BigEndian.Uint32(to.header[atDestination:])] = to
}

// towards gives the tunnel by which a packet of that size goes to a home's guest elsewhere, or to home.
func (tn *tunnel) towards(dst uint32, size int) *tunnel {
	for _, d := range tn.around {
		if d.guests.has(dst) {
			if d.way.want(); d.way.Up.Load() && size <= d.to.mtu {
				return d.to
			}
			break
		}
	}
	return tn
}

// towards6 is towards for IPv6.
func (tn *tunnel) towards6(dst addr6, size int) *tunnel {
	for _, d := range tn.around {
		if d.six && d.guests6.has(dst) {
			if d.way.want(); d.way.Up.Load() && size <= d.to.six.mtu {
				return d.to
			}
			break
		}
	}
	return tn
}

// protoQuestion is a message of ours between two gateways, by a number that RFC 3692 leaves to whoever wants it: one byte says which, four its number.
const protoQuestion = 253

const (
	asks         = 1
	answers      = 2
	questionSize = Header + 5
)

// Question is a message that the other gateway's data path answers, ready to be sealed.
func (d Direct) Question(number uint32) []byte {
	b := make([]byte, questionSize)
	(&tunnel{header: headerOf(d.Called, d.Handle)}).wrap(b)
	b[9], b[Header] = protoQuestion, asks
	binary.BigEndian.PutUint32(b[Header+1:], number)
	return b
}

// IsQuestion reports whether what is to be sealed, or was opened, is a question or an answer.
func IsQuestion(b []byte) bool { return len(b) == questionSize && b[9] == protoQuestion }

// question takes one in, and makes an answer of it in place, which is ready to leave.
func (tn *tunnel) question(b []byte) (v Verdict, onward bool) {
	switch {
	case tn.direct == nil || len(b) != questionSize:
		return Malformed, false
	case b[Header] == asks:
		tn.direct.way.asked.Store(true)
		tn.direct.way.Wake()
		tn.wrap(b)
		b[9], b[Header] = protoQuestion, answers
		return Pass, true
	case b[Header] == answers:
		tn.direct.way.Answered.Store(binary.BigEndian.Uint32(b[Header+1:]))
		tn.direct.way.Wake()
		return Taken, false
	}
	return Malformed, false
}
