// Package memory keeps a program small while it has nothing to do: kithd, and the built-in engine. Nothing else in them may collect garbage by hand.
package memory

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Limits say when a program is tidied.
type Limits struct {
	Every time.Duration
	Rest  time.Duration // between two collections, at least
	Waste uint64        // bytes; less than this is not worth a collection
	Calm  uint64        // bytes; a program that allocates more within Every, and a quarter of what lives in it, is at work
	Pools bool          // collect twice at a time: what lies in a sync.Pool, as WireGuard's packet buffers do, goes with the second
	Most  uint64        // bytes, from which on the collector tries harder, unless GOMEMLIMIT says it; 0: it never does
}

// Limits of kithd; of the engine, which allocates for its own watches and leases all the time, and whose heap is ten times as large: a
// collection takes ten times as long; of containerd, which the engine asks several times a second; and of the shim that each pod has.
var (
	Daemon     = Limits{Every: 30 * time.Second, Rest: time.Minute, Waste: 6 << 20, Calm: 8 << 20, Pools: true, Most: 160 << 20} // WireGuard's packet buffers grow under load
	Engine     = Limits{Every: 30 * time.Second, Rest: time.Minute, Waste: 16 << 20, Calm: 50 << 20, Most: 1 << 30}
	Containerd = Limits{Every: 30 * time.Second, Rest: 2 * time.Minute, Waste: 2 << 20, Calm: 25 << 20}
	Shim       = Limits{Every: time.Minute, Waste: 1 << 20, Calm: 4 << 20}
)

// Tidy gives the memory back that work left behind, once the program is calm. Go's collector lets a heap grow to twice of what
// lives in it, and returns what is free over minutes: right for a busy server, too much on a laptop that sleeps. What
// lives in kithd is small; and most of what Go counts as living there are WireGuard's packet buffers, of which hardly a page was ever
// touched, so that the garbage allowed beside them would be most of the process. Pages of the program are let go
// each time: those in use come back at once, a few hundred soft faults in all.
func Tidy(ctx context.Context, limits Limits) error {
	tick := time.NewTicker(limits.Every)
	defer tick.Stop()
	limited := limits.Most > 0 && os.Getenv("GOMEMLIMIT") == ""
	var m heap
	collected := time.Now()
	for {
		if limited {
			debug.SetMemoryLimit(int64(m.limit(limits.Most))) //nolint:gosec // far below
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before := m.allocated
		if m = readMemory(); m.allocated-before >= max(limits.Calm, m.needed/4) {
			continue
		}
		if m.waste > limits.Waste && time.Since(collected) >= limits.Rest {
			collect(limits.Pools)
			collected = time.Now()
		}
		forgetProgram()
	}
}

func collect(pools bool) {
	if pools {
		runtime.GC()
	}
	debug.FreeOSMemory()
}

// heap is what Go says of its heap, in bytes.
type heap struct {
	allocated uint64 // since the start
	waste     uint64 // garbage, as far as is known, and free memory that is not returned
	needed    uint64 // all else that Go has from the system
}

// limit is a limit that can be held. Go's collector runs again and again where what lives does not leave it room: a hub with a hundred peers
// would compute one and a half cores for nothing.
func (h heap) limit(wanted uint64) uint64 { return max(wanted, h.needed+h.needed/2) }

func readMemory() heap {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(s)
	allocated, live, objects := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()
	waste := s[3].Value.Uint64()
	if objects > live {
		waste += objects - live
	}
	return heap{allocated: allocated, waste: waste, needed: s[4].Value.Uint64() - s[5].Value.Uint64() - waste}
}
