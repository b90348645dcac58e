package containerd

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/base/process"
)

// containerd outlives servers and is seldom started: its log is bounded while it runs, and what it writes next is at its new end.
func TestTheLogOfARunningContainerdIsBounded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{DataDir: dir}, slog.New(slog.DiscardHandler))
		log, err := process.OpenLog(r.logFile())
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.trimLogs(ctx)
		old := bytes.Repeat([]byte("x"), logLimit)
		for _, text := range [][]byte{old, old} { // more than twice what may stay
			if _, err := log.Write(text); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * logEvery)
			synctest.Wait()
		}
		if _, err := log.WriteString("new"); err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(r.logFile()); err != nil || string(now) != "new" {
			t.Errorf("%d bytes, %v", len(now), err)
		}
		if before, err := os.ReadFile(r.logFile() + ".1"); err != nil || !bytes.Equal(before, old) {
			t.Errorf("the older one has %d bytes, %v", len(before), err)
		}
		time.Sleep(2 * logEvery)
		synctest.Wait()
		if now, _ := os.ReadFile(r.logFile()); string(now) != "new" {
			t.Errorf("a small log became %q", now)
		}
	})
}
