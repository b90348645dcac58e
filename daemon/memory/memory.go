// Package memory keeps kithd small while it has nothing to do. The daemon runs it; nothing else may collect garbage by hand.
package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	tidyEvery = 30 * time.Second
	// Less than so many bytes of waste are not worth a collection.
	waste = 6 << 20
	// A daemon that allocates more than so many bytes within tidyEvery is at work.
	calm = 8 << 20
)

// Tidy gives the memory back that work left behind, once kithd is calm. Go's collector lets a heap grow to twice of what
// lives in it, and returns what is free over minutes: right for a busy server, too much for a daemon that sleeps. What
// lives here is small; and most of what Go counts as living are WireGuard's packet buffers, of which hardly a page was ever
// touched, so that the garbage allowed beside them would be most of the process.
func Tidy(ctx context.Context) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var m heap
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		before := m.allocated
		if m = readMemory(); m.allocated-before < calm && m.waste > waste {
			tidyNow()
		}
	}
}

// tidyNow collects twice: what lies in a sync.Pool, as WireGuard's packet buffers do, goes with the second time.
func tidyNow() {
	runtime.GC()
	debug.FreeOSMemory()
	forgetProgram()
}

// heap is what Go says of its heap, in bytes.
type heap struct {
	allocated uint64 // since the start
	waste     uint64 // garbage, as far as is known, and free memory that is not returned
}

func readMemory() heap {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s)
	allocated, live, objects := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()
	free := s[3].Value.Uint64()
	if objects > live {
		free += objects - live
	}
	return heap{allocated, free}
}
