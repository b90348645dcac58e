package memory

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"
	"weak"
)

// TestCollectionsRest: a program whose pages are let go often collects no more often for it; and none collects while it works.
func TestCollectionsRest(t *testing.T) {
	forced := func(limits Limits) (n uint32) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := Tidy(ctx, limits); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.NumForcedGC - before.NumForcedGC
	}
	litter := func() {
		for range 4 {
			kept = make([]byte, 1<<20)
		}
	}
	often := Limits{Every: time.Millisecond, Calm: math.MaxUint64}
	if litter(); forced(often) == 0 {
		t.Error("it never collects")
	}
	resting := often
	resting.Rest = time.Hour
	if litter(); forced(resting) != 0 {
		t.Error("it collects although it did when it began")
	}
	working := Limits{Every: 20 * time.Millisecond}
	var work sync.WaitGroup
	done := make(chan struct{})
	work.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				litter()
			}
		}
	})
	collects := true
	for tries := 0; collects && tries < 20; tries++ { // on a busy machine the work may stand still for a period
		collects = forced(working) != 0
	}
	if collects {
		t.Error("it collects while the program allocates")
	}
	close(done)
	work.Wait()
}

// TestALimitLeavesRoom: the limit is what is wanted, until what lives would leave the collector no room below it.
func TestALimitLeavesRoom(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	tidy := func(most uint64) int64 {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := Tidy(ctx, Limits{Every: time.Millisecond, Most: most}); err != nil {
			t.Fatal(err)
		}
		return debug.SetMemoryLimit(-1)
	}
	if got := tidy(1 << 40); got != 1<<40 {
		t.Errorf("the limit is %d", got)
	}
	lives := make([]byte, 64<<20)
	runtime.GC() // it is known from then on that they live
	if got := tidy(1 << 20); got < 96<<20 || got > 1<<30 {
		t.Errorf("the limit is %d, while 64 MiB live", got)
	}
	runtime.KeepAlive(lives)
	t.Setenv("GOMEMLIMIT", "1GiB")
	debug.SetMemoryLimit(1 << 30)
	if got := tidy(1 << 20); got != 1<<30 {
		t.Errorf("the limit that the owner set is %d", got)
	}
}

// kept makes the compiler allocate what nobody reads.
var kept []byte

func TestTidyingEmptiesPools(t *testing.T) {
	var pool sync.Pool
	seen := func() weak.Pointer[[1 << 16]byte] {
		buffer := new([1 << 16]byte)
		pool.Put(buffer)
		return weak.Make(buffer)
	}()
	collect(true)
	if seen.Value() != nil {
		t.Error("a buffer that nobody uses is still in memory")
	}
	if pool.Get() != nil {
		t.Error("a buffer is still in its pool")
	}
}
