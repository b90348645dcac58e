package daemon

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

// tidy gives the memory back that work left behind, once kithd is calm. Go's collector lets a heap grow to twice of what
// lives in it, and returns what is free over minutes: right for a busy server, too much for a daemon that sleeps. What
// lives here is small; and most of what Go counts as living are WireGuard's packet buffers, of which hardly a page was ever
// touched, so that the garbage allowed beside them would be most of the process.
func tidy(ctx context.Context) error {
	tick := time.NewTicker(tidyEvery)
	defer tick.Stop()
	var m memory
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

// memory is what Go says of its heap, in bytes.
type memory struct {
	allocated uint64 // since the start
	waste     uint64 // garbage, as far as is known, and free memory that is not returned
}

func readMemory() memory {
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
	return memory{allocated, free}
}
