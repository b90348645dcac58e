// Package pace judges how long something took, where the machine lets it.
package pace

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// Within fails a test in which something took longer than it may. On a machine that is busy with other things it only says so: how long
// anything takes there tells of those.
func Within(t testing.TB, what string, took, limit time.Duration) {
	t.Helper()
	if took <= limit {
		return
	}
	if load := load(); load > 4*float64(runtime.NumCPU()) {
		t.Logf("%s: after %s, not %s, at a load of %.0f", what, took, limit, load)
		return
	}
	t.Errorf("%s: after %s, want it within %s", what, took, limit)
}

// load is how many tasks wanted a processor, or the disk, over the last minute (proc_loadavg(5)); 0 where nobody says.
func load() (n float64) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &n)
	}
	return n
}
