package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// store is a program that keeps what an API server writes.
type store struct {
	name string
	args func(dir string) (program string, args []string, url string)
}

// stores are the engine's datastore, and an etcd on the same socket: as it comes, and without its syncs.
var stores = []store{
	{"ours", func(dir string) (string, []string, string) {
		socket := filepath.Join(dir, "socket")
		return "storeload", []string{"serve", filepath.Join(dir, "state.db"), socket}, "unix://" + socket
	}},
	{"etcd", etcd},
	{"etcd without fsync", func(dir string) (string, []string, string) {
		program, args, url := etcd(dir)
		return program, append(args, "--unsafe-no-fsync"), url
	}},
}

// etcd has compaction as an API server asks for it; its socket is a file in its folder that is named as a host and its port.
func etcd(dir string) (program string, args []string, url string) {
	const host = "etcd:1"
	return "etcd", []string{
		"--data-dir", filepath.Join(dir, "data"), "--log-level", "error", "--listen-client-urls", "unix://" + host, "--advertise-client-urls", "unix://" + host,
		"--listen-peer-urls", "http://127.0.0.1:0",
	}, "unix://" + filepath.Join(dir, host)
}

// storeLives are the pods that come and go; each is eleven writes.
const storeLives = 500

// storeIdle is how long a datastore is looked at that nobody writes to.
const storeIdle = 10 * time.Second

// datastores puts the writes of an API server on the engine's datastore and on etcd by turns.
func datastores(ctx context.Context, r *rig) error {
	for range max(1, r.rounds/2) {
		seen := map[string]storeRun{}
		for _, s := range stores {
			one, err := s.measure(ctx)
			if err != nil {
				return fmt.Errorf("datastore %s: %w", s.name, err)
			}
			seen[s.name] = one
		}
		for _, figure := range []struct {
			what, unit string
			of         func(storeRun) float64
		}{
			{"datastore: started, until it answers", "s", func(s storeRun) float64 { return s.start }},
			{"datastore: CPU time of a pod's life of eleven writes", "ms", func(s storeRun) float64 { return 1e3 * s.cpu / float64(s.Lives) }},
			{"datastore: written to disk for a pod's life", "kB", func(s storeRun) float64 { return 1e3 * s.written / float64(s.Lives) }},
			{"datastore: one write, median", "ms", func(s storeRun) float64 { return s.Median }},
			{"datastore: one write, 99th percentile", "ms", func(s storeRun) float64 { return s.P99 }},
			{"datastore: list of 500 objects, median", "ms", func(s storeRun) float64 { return s.List }},
			{"datastore: object made, until a watcher hears of it, median", "ms", func(s storeRun) float64 { return s.Event }},
			{"datastore: memory after the load", "MB", func(s storeRun) float64 { return s.rss }},
			{"datastore: idle CPU", "% of a core", func(s storeRun) float64 { return s.idleCPU }},
			{"datastore: idle wake-ups", "a second", func(s storeRun) float64 { return s.wakes }},
		} {
			r.report.Pair(figure.what, figure.unit, stores[0].name, figure.of(seen[stores[0].name]), stores[1].name, figure.of(seen[stores[1].name]))
			r.report.Add(figure.what+", "+stores[2].name, figure.unit, figure.of(seen[stores[2].name]))
		}
	}
	return nil
}

// storeRun is what became of one datastore under load.
type storeRun struct {
	Lives          int
	Median, P99    float64 // ms
	List, Event    float64 // ms
	start, cpu     float64 // seconds
	written, rss   float64 // MB
	idleCPU, wakes float64
}

func (s store) measure(ctx context.Context) (got storeRun, err error) {
	dir, err := os.MkdirTemp("build", "store")
	if err != nil {
		return got, err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.Abs(dir); err != nil {
		return got, err
	}
	program, args, url := s.args(dir)
	binary, err := filepath.Abs(filepath.Join("build", program))
	if err != nil {
		return got, err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 10*time.Second
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return got, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it may say that it was ended
	}()
	if err := s.load(ctx, url, 0, &got); err != nil { // answers as soon as the datastore does
		return got, err
	}
	got.start = time.Since(began).Seconds()
	proc := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
	now := func() (process, error) {
		p, ok := look(proc)
		if !ok {
			return p, errors.New("it ended")
		}
		return p, nil
	}
	before, err := now()
	if err != nil {
		return got, err
	}
	if err := s.load(ctx, url, storeLives, &got); err != nil {
		return got, err
	}
	after, err := now()
	if err != nil {
		return got, err
	}
	pause(ctx, storeIdle)
	idle, err := now()
	got.cpu, got.written, got.rss = after.cpu-before.cpu, after.written-before.written, after.rss
	got.idleCPU = 100 * (idle.cpu - after.cpu) / storeIdle.Seconds()
	got.wakes = float64(idle.switches-after.switches) / storeIdle.Seconds()
	return got, err
}

func (s store) load(ctx context.Context, url string, lives int, into *storeRun) error {
	cmd := exec.CommandContext(ctx, filepath.Join("build", "storeload"), "-lives", strconv.Itoa(lives), "load", url)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}
