package localapi

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/api"
)

// looked is a Backend that counts how often somebody looks.
type looked struct {
	Backend
	mu      sync.Mutex
	name    string
	looks   int
	changed chan struct{}
}

func (b *looked) Snapshot(context.Context) (api.Snapshot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	return api.Snapshot{Status: api.Status{Name: b.name}}, nil
}

func (b *looked) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// ring says that the snapshot has another name, or, with the same one, that it may be another one.
func (b *looked) ring(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name = name
	close(b.changed)
	b.changed = make(chan struct{})
}

// paper is what a follower reads.
type paper struct {
	http.ResponseWriter
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *paper) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (*paper) SetWriteDeadline(time.Time) error { return nil }
func (*paper) Flush()                           {}

// read gives what was written since the last time: snapshots, and signs of life.
func (p *paper) read() (snapshots, signs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range bytes.Lines(p.text.Bytes()) {
		if len(line) > 1 {
			snapshots++
		} else {
			signs++
		}
	}
	p.text.Reset()
	return snapshots, signs
}

func TestNobodyLooksWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &looked{name: "alice", changed: make(chan struct{})}
		s := New(Options{Backend: b, Events: NewBroker(1), Log: quiet})
		ctx, cancel := context.WithCancel(t.Context())
		out := &paper{ResponseWriter: httptest.NewRecorder()}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.serveSnapshots(out, httptest.NewRequestWithContext(ctx, "GET", api.PathSnapshot+"?follow=true", nil))
		}()
		synctest.Wait()
		if snapshots, signs := out.read(); snapshots != 1 || signs != 0 {
			t.Errorf("at first %d snapshots and %d signs of life", snapshots, signs)
		}
		time.Sleep(24*time.Hour + time.Second)
		if snapshots, signs := out.read(); b.looks != 1 || snapshots != 0 || signs != int(24*time.Hour/life) {
			t.Errorf("in a day %d looks, %d snapshots and %d signs of life", b.looks-1, snapshots, signs)
		}
		for range 5 { // one cause
			b.ring("bob")
		}
		time.Sleep(together + time.Millisecond)
		synctest.Wait()
		if snapshots, _ := out.read(); b.looks != 2 || snapshots != 1 {
			t.Errorf("after a change %d looks and %d snapshots", b.looks-1, snapshots)
		}
		for range int(2 * life / time.Second) { // others than the follower hear of it, and he lives
			b.ring("bob")
			time.Sleep(time.Second)
		}
		if snapshots, signs := out.read(); snapshots != 0 || signs < 1 {
			t.Errorf("without a change %d snapshots and %d signs of life", snapshots, signs)
		}
		cancel()
		<-ended
	})
}
