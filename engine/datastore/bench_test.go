package datastore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/k3s-io/kine/pkg/server"
)

// written is how many bytes this process has given to the kernel to write.
func written(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip(err)
	}
	var n int64
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "wchar: %d", &n)
	}
	return float64(n)
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func openBackend(b *testing.B) (context.Context, server.Backend, string) {
	b.Helper()
	dir := os.Getenv("KITH_BENCH_DIR") // on a disk, as a folder in memory costs no fsync
	if dir == "" {
		dir = b.TempDir()
	}
	dir, err := os.MkdirTemp(dir, "store-")
	if err != nil {
		b.Fatal(err)
	}
	s := &Store{reserve: newReserve(dir, slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler), writers: &sync.WaitGroup{}}
	ctx, stop := context.WithCancel(context.Background())
	b.Cleanup(func() { stop(); s.writers.Wait(); os.RemoveAll(dir) })
	file := filepath.Join(dir, "state.db")
	backend, err := s.open(ctx, file)
	if err != nil {
		b.Fatal(err)
	}
	return ctx, backend, file
}

// BenchmarkPodLives is what eight writers make of pods that come and go: made, four statuses, five events, deleted.
func BenchmarkPodLives(b *testing.B) {
	ctx, backend, file := openBackend(b)
	value := []byte(noise(8 << 10))
	for range 20 {
		w := backend.Watch(ctx, "/registry/pods/", "/registry/pods0", 0)
		go func() {
			for range w.Events {
			}
		}()
	}
	must := func(ok bool, err error) {
		if err != nil || !ok {
			b.Error(ok, err)
		}
	}
	bytes, cpu := written(b), cpuTime(b)
	var next, largest, both atomic.Int64
	b.ResetTimer()
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				key := fmt.Sprintf("/registry/pods/default/churn-7d9f8c5b6-%05d", i)
				rev, err := backend.Create(ctx, key, value[:2800], 0)
				must(true, err)
				for k := range 4 {
					r, _, ok, err := backend.Update(ctx, key, value[:3000+700*k], rev, 0)
					must(ok, err)
					rev = r
				}
				for k := range 5 {
					_, err := backend.Create(ctx, fmt.Sprintf("/registry/events/default/churn-7d9f8c5b6-%05d.18a0abcdef%06d", i, k), value[:850], 3600)
					must(true, err)
				}
				_, _, ok, err := backend.Delete(ctx, key, rev)
				must(ok, err)
				if st, err := os.Stat(file + "-wal"); err == nil {
					largest.Store(max(largest.Load(), st.Size()))
				}
				if st, err := os.Stat(file); err == nil {
					both.Store(max(both.Load(), st.Size()+largest.Load()))
				}
			}
		})
	}
	writers.Wait()
	b.StopTimer()
	b.ReportMetric((written(b)-bytes)/float64(b.N)/1e3, "kB-written/op")
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "µs-cpu/op")
	b.ReportMetric(float64(largest.Load())/1e6, "MB-log-max")
	b.ReportMetric(float64(both.Load())/1e6, "MB-max")
}

// BenchmarkLease is one renewal of a lease, with its share of checkpoints and compactions.
func BenchmarkLease(b *testing.B) {
	ctx, backend, _ := openBackend(b)
	value := []byte(noise(500))
	var revs [3]int64
	key := func(i int) string { return fmt.Sprintf("/registry/leases/kube-node-lease/laptop-%d", i) }
	for i := range revs {
		r, err := backend.Create(ctx, key(i), value, 0)
		if err != nil {
			b.Fatal(err)
		}
		revs[i] = r
	}
	bytes, cpu := written(b), cpuTime(b)
	var mark int64
	b.ResetTimer()
	for i := range b.N {
		k := i % len(revs)
		r, _, ok, err := backend.Update(ctx, key(k), value, revs[k], 0)
		if err != nil || !ok {
			b.Fatal(ok, err)
		}
		revs[k] = r
		if i%90 == 89 { // five minutes
			if _, err := backend.Compact(ctx, mark); err != nil {
				b.Fatal(err)
			}
			mark = r
		}
	}
	b.StopTimer()
	b.ReportMetric((written(b)-bytes)/float64(b.N), "B-written/op")
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "µs-cpu/op")
}
