// Package processors has the engine run on one processor while it is calm, and on all that it was given while it has work. Nothing else may set
// GOMAXPROCS.
//
// Each timer and each packet wakes a Go program up, and with several processors Go then wakes a second thread, which looks for work that is not
// there, and often a third. An idle laptop feels that more than the work itself (docs/performance.md). kithd has too few timers for that: to
// look whether there is work would wake it as often as it saves.
package processors

import (
	"context"
	"os"
	"runtime"
	"time"
)

// pace says when a program has work, and when it is calm.
type pace struct {
	look  time.Duration // how often one that runs on one processor looks
	late  time.Duration // who waits longer for the one processor finds work in front of him
	waits int           // at so many looks in a row somebody did: there is work for more processors
	calm  time.Duration // changing the number stops the program for a moment, so it lasts at least so long
	share float64       // of one processor: who used less all this time is calm
}

// usual needs a second and a half to notice work: less, and a collection of garbage would pass for it.
var usual = pace{look: 500 * time.Millisecond, late: time.Millisecond, waits: 3, calm: time.Minute, share: 1.0 / 8}

// Follow sets how many processors the program runs on by what it has to do, until ctx ends; then all. Where GOMAXPROCS is set in the
// environment, or there is one processor, it does nothing.
func Follow(ctx context.Context) {
	if _, set := os.LookupEnv("GOMAXPROCS"); !set && runtime.GOMAXPROCS(0) > 1 {
		follow(ctx, usual)
	}
}

func follow(ctx context.Context, p pace) {
	defer runtime.SetDefaultGOMAXPROCS()
	for {
		for used := cpuTime(); ; {
			if !sleep(ctx, p.calm) {
				return
			}
			before := used
			if used = cpuTime(); (used - before).Seconds() < p.share*p.calm.Seconds() {
				break
			}
		}
		runtime.GOMAXPROCS(1)
		for waited := 0; waited < p.waits; {
			if !sleep(ctx, p.look) {
				return
			}
			if waited++; queued() < p.late {
				waited = 0
			}
		}
		runtime.SetDefaultGOMAXPROCS()
	}
}

// sleep reports whether it lasted as long as it should.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// queued is how long one that can run waits for a processor now. What other timers woke at this moment goes first, and is not seen as work to do.
func queued() time.Duration {
	runtime.Gosched()
	began := time.Now()
	runtime.Gosched()
	return time.Since(began)
}
