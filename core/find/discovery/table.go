package discovery

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"kith.dev/core/base/backoff"
	"kith.dev/core/base/notify"
	"kith.dev/core/trust/identity"
)

// Found is a cluster as all finders together see it now. It is still only what was claimed.
type Found struct {
	ID        identity.ID
	Name      string   // for people
	Sources   []Source // sorted
	Addresses []netip.AddrPort
	Seen      time.Time // the latest of all sources
}

// Table runs finders and keeps what they see. It is safe for concurrent use.
type Table struct {
	finders []Finder
	log     *slog.Logger

	changed notify.Broadcast
	mu      sync.Mutex
	seen    []map[identity.ID]Sighting // by finder
}

// NewTable makes the table of these finders; Run starts them.
func NewTable(log *slog.Logger, finders ...Finder) *Table {
	t := &Table{finders: finders, log: log}
	for range finders {
		t.seen = append(t.seen, map[identity.ID]Sighting{})
	}
	return t
}

const (
	retryFirst = time.Second
	retryMax   = 2 * time.Minute
)

// Run runs all finders until ctx ends, and returns nil when all have stopped. A finder that fails is
// started again, ever later; what it saw is forgotten, the others go on.
func (t *Table) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for n := range t.finders {
		wg.Go(func() { t.keepRunning(ctx, n) })
	}
	wg.Wait()
	return nil
}

func (t *Table) keepRunning(ctx context.Context, n int) {
	finder := t.finders[n]
	growing := backoff.Doubling{First: retryFirst, Most: retryMax, Jitter: 0.5}
	for {
		began := time.Now()
		err := t.runOnce(ctx, n)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > retryMax {
			growing.Reset()
		}
		pause := growing.Next()
		t.log.Warn("a finder of other clusters failed, will start it again", "finder", finder.String(), "err", err, "in", pause)
		t.clear(n)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (t *Table) runOnce(ctx context.Context, n int) error {
	events := make(chan Event)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events {
			t.apply(n, e)
		}
	}()
	err := t.finders[n].Run(ctx, events)
	close(events)
	<-done
	if err == nil && ctx.Err() == nil {
		err = fmt.Errorf("ended by itself")
	}
	return err
}

func (t *Table) apply(n int, e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Gone {
		delete(t.seen[n], e.ID)
	} else {
		t.seen[n][e.ID] = e.Sighting
	}
	t.changed.Notify()
}

func (t *Table) clear(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.seen[n]) > 0 {
		clear(t.seen[n])
		t.changed.Notify()
	}
}

// Changed gives a channel that is closed by the next change. Take it before Snapshot.
func (t *Table) Changed() <-chan struct{} { return t.changed.Wait() }

// Snapshot is what is seen now, sorted by name, then ID. It is the caller's own.
func (t *Table) Snapshot() []Found {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Sighting
	for _, sightings := range t.seen {
		for _, s := range sightings {
			all = append(all, s)
		}
	}
	return merge(all)
}

// likely leaves link-local addresses out where there are others: on the LAN all are a neighbour's, so they lead nowhere else, and of a cluster that
// is away fewer are tried, and named in what is said of it.
func (s Sighting) likely() []netip.AddrPort {
	linkLocal := func(a netip.AddrPort) bool { return a.Addr().IsLinkLocalUnicast() }
	if others := slices.DeleteFunc(slices.Clone(s.Addresses), linkLocal); len(others) > 0 {
		return others
	}
	return s.Addresses
}

// merge joins sightings of one ID.
func merge(sightings []Sighting) []Found {
	// In one order whatever the finders' was, the one to be believed first in front: on the LAN a cluster names itself, in the DNS
	// its domain does ("lan" sorts behind "dns").
	slices.SortFunc(sightings, func(a, b Sighting) int {
		return cmp.Or(cmp.Compare(b.Source, a.Source), b.Seen.Compare(a.Seen), cmp.Compare(a.Name, b.Name), slices.CompareFunc(a.Addresses, b.Addresses, netip.AddrPort.Compare))
	})
	var out []Found
	for _, s := range sightings {
		i := slices.IndexFunc(out, func(f Found) bool { return f.ID == s.ID })
		if i < 0 {
			out = append(out, Found{ID: s.ID, Name: s.Name})
			i = len(out) - 1
		}
		f := &out[i]
		if !slices.Contains(f.Sources, s.Source) {
			f.Sources = append(f.Sources, s.Source)
		}
		for _, a := range s.likely() {
			if !slices.Contains(f.Addresses, a) { // bounded: each source gives at most 16
				f.Addresses = append(f.Addresses, a)
			}
		}
		if s.Seen.After(f.Seen) {
			f.Seen = s.Seen
		}
	}
	for i := range out {
		slices.Sort(out[i].Sources)
	}
	slices.SortStableFunc(out, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Compare(a.ID[:], b.ID[:]))
	})
	return out
}
