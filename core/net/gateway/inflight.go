package gateway

import (
	"sync/atomic"
	"time"
)

// inFlight bounds how many packets are inside WireGuard in one direction. WireGuard queues up to a thousand batches per peer, each packet in a
// buffer of 64 KiB. Packets that arrive faster than they are encrypted or decrypted would fill hundreds of megabytes, which costs more time
// than the packets themselves: they do not fit a CPU cache, and above the memory limit Go's garbage collector runs again and again. Packets
// beyond the bound wait in the kernel's queues instead, where they take their own size and senders notice the congestion.
//
// Packets are counted on their way in and out. Those for a peer whose tunnel is down are not counted: WireGuard keeps a few of them for a
// handshake that may never be answered, and nobody else must wait for that. Other packets that WireGuard drops never come out: when none came
// out for a while, and none is on its way out, the count is reset.
type inFlight struct {
	in    atomic.Int64
	out   atomic.Int32  // calls under way in which packets come out
	waits atomic.Int32  // calls under way that wait for room
	moved chan struct{} // has an item when some came out while others waited
}

const (
	// room in a pipe: for each of its stages to have a batch at hand (64 KiB from a pod, two such from the network) on a laptop
	// of many cores, and few enough for a cache. A batch more may be inside.
	room = 256
	// lost is after how long without any that comes out the packets inside count as dropped. A full pipe empties in a few
	// milliseconds.
	lost = 20 * time.Millisecond
)

func newInFlight() *inFlight { return &inFlight{moved: make(chan struct{}, 1)} }

// await returns when there is room.
func (p *inFlight) await() {
	if p.in.Load() < room {
		return
	}
	p.waits.Add(1)
	defer p.waits.Add(-1)
	t := time.NewTimer(lost)
	defer t.Stop()
	for p.in.Load() >= room {
		select {
		case <-p.moved:
		case <-t.C:
			if p.out.Load() == 0 {
				p.in.Store(0)
			}
		}
		t.Reset(lost)
	}
	p.tell() // whoever else waits
}

// enter counts packets that went in.
func (p *inFlight) enter(n int) { p.in.Add(int64(n)) }

// begin says that packets are on their way out, and end that so many came out.
func (p *inFlight) begin() { p.out.Add(1) }

func (p *inFlight) end(n int) {
	p.out.Add(-1)
	p.leave(n)
}

// leave counts packets that are inside no longer.
func (p *inFlight) leave(n int) {
	if now := p.in.Add(-int64(n)); now < 0 {
		p.in.CompareAndSwap(now, 0) // they had been forgotten
	}
	if p.waits.Load() > 0 {
		p.tell()
	}
}

func (p *inFlight) tell() {
	select {
	case p.moved <- struct{}{}:
	default:
	}
}
