package processors

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// TestACalmProgramRunsOnOneProcessor: and one with work on all, as soon as it waits; and after its end, on all.
func TestACalmProgramRunsOnOneProcessor(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	if all == 1 {
		t.Skip("needs two processors")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		follow(ctx, pace{look: time.Millisecond, late: time.Millisecond, waits: 3, calm: 50 * time.Millisecond, share: 0.5})
		close(ended)
	}()
	until := func(n int, what string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); runtime.GOMAXPROCS(0) != n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d processors, want %d", what, runtime.GOMAXPROCS(0), n)
			}
		}
	}
	until(1, "calm")
	work, done := context.WithCancel(t.Context())
	for range 2 * all {
		go func() {
			for work.Err() == nil {
			}
		}()
	}
	until(all, "with work")
	done()
	until(1, "calm again")
	cancel()
	<-ended
	if now := runtime.GOMAXPROCS(0); now != all {
		t.Errorf("%d processors at the end, want %d", now, all)
	}
}

// TestWhatTheEnvironmentSaysHolds: whoever sets GOMAXPROCS knows why.
func TestWhatTheEnvironmentSaysHolds(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	Follow(t.Context()) // returns at once
}
