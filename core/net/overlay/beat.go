package overlay

import (
	"cmp"
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Each node sends probes to the gateway's node over the VXLAN, which answers them, to detect when the VXLAN's UDP port is blocked in either
// direction. Probes are Ethernet frames of a type of their own, not IP, so that no firewall rule for what comes out of the VXLAN affects them.
const (
	asks = 5 * time.Second
	lost = 3 // the path counts as cut after so many probes in a row without an answer, or as long without a probe

	etherType = 0x88b5 // for local experiments (IEEE 802)
	magic     = "kith"
	version   = 1
	beatSize  = 16
)

// beat is what such a frame says. In bytes: magic of 4, version, kind, questions in a row without an answer, 0, number of 8 (big endian).
type beat struct {
	kind   kind
	missed uint8 // in a question
	number uint64
}

type kind uint8

const (
	question kind = iota
	answer        // has the question's number
	farewell      // of a node that turns to another gateway
	kinds
)

func (b beat) bytes() []byte {
	return binary.BigEndian.AppendUint64(append([]byte(magic), version, byte(b.kind), b.missed, 0), b.number)
}

// readBeat reads what may be anybody's, and padded.
func readBeat(b []byte) (is beat, ok bool) {
	if len(b) < beatSize || string(b[:4]) != magic || b[4] != version || kind(b[5]) >= kinds {
		return beat{}, false
	}
	return beat{kind: kind(b[5]), missed: b[6], number: binary.BigEndian.Uint64(b[8:])}, true
}

// Direction is where nothing comes through between a node and the gateway's.
type Direction string

// Directions.
const (
	Open Direction = ""
	To   Direction = "To"   // nothing of the node's arrives at the gateway's
	From Direction = "From" // nothing of the gateway's arrives at the node
)

// Ways is what the gateway's node has heard from the others. The zero value is ready. Safe for concurrent use.
type Ways struct {
	every time.Duration // as nodes ask; 0: asks

	mu    sync.Mutex
	since time.Time                // it listens
	port  int                      // of the VXLAN
	heard map[netip.Addr]lastHeard // by the node's address
}

type lastHeard struct {
	at     time.Time
	missed uint8
}

// mostNodes bounds what is remembered, whoever sends.
const mostNodes = 5000 // that Kubernetes is made for

func (w *Ways) note(node netip.Addr, b beat, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.kind == farewell {
		delete(w.heard, node)
		return
	}
	if w.heard == nil {
		w.heard = map[netip.Addr]lastHeard{}
	}
	if _, known := w.heard[node]; known || len(w.heard) < mostNodes {
		w.heard[node] = lastHeard{now, b.missed}
	}
}

// Most gives what says whether most of the nodes that are heard now are still heard later: those that turn to another gateway ask here no more. Where
// none is heard there is nobody who could.
func (w *Ways) Most() (still func() bool) {
	heard := func() map[netip.Addr]bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		list := map[netip.Addr]bool{}
		for a, is := range w.heard {
			if time.Since(is.at) < w.silence() {
				list[a] = true
			}
		}
		return list
	}
	before := heard()
	return func() bool {
		now, same := heard(), 0
		for a := range before {
			if now[a] {
				same++
			}
		}
		return 2*same >= len(before)
	}
}

// begin forgets what was heard: a process that heard nothing for a while knows nothing.
func (w *Ways) begin(now time.Time, port int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.port, w.heard = now, port, nil
}

// Cut says in which direction no packets pass between the gateway's node and the node with this address, and the UDP port that they should use.
// It is Open as long as Listen runs too shortly to know.
func (w *Ways) Cut(node netip.Addr) (Direction, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut(node, time.Now()), w.port
}

func (w *Ways) cut(node netip.Addr, now time.Time) Direction {
	is, known := w.heard[node]
	switch {
	case known && now.Sub(is.at) < w.silence() && is.missed >= lost:
		return From
	case known && now.Sub(is.at) < w.silence() || !w.sure(now):
		return Open
	}
	return To
}

// sure: it listens long enough to know of those it never heard.
func (w *Ways) sure(now time.Time) bool { return !w.since.IsZero() && now.Sub(w.since) >= w.silence() }

func (w *Ways) pace() time.Duration    { return cmp.Or(w.every, asks) }
func (w *Ways) silence() time.Duration { return (lost + 1) * w.pace() }

// cuts are all that were heard once, and sure stands for the others: what Cut says follows from both.
func (w *Ways) cuts(now time.Time) (list map[netip.Addr]Direction, sure bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list = map[netip.Addr]Direction{}
	for a := range w.heard {
		list[a] = w.cut(a, now)
	}
	return list, w.sure(now)
}

// nodeOf is the node whose end has such an address; see hardware.
func nodeOf(mac net.HardwareAddr) (netip.Addr, bool) {
	if len(mac) != 6 || mac[0] != 0x0a || mac[1] != 0x6b {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(mac[2:])), true
}

func oneMore(n uint8) uint8 { return n + min(1, math.MaxUint8-n) }
