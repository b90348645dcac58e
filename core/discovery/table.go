package discovery

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"kith.dev/core/identity"
)

// Found is a cluster as all finders together see it now. It is still only what was claimed.
type Found struct {
	ID        identity.ID // zero until somebody tells one
	Name      string      // for people
	Sources   []Source    // sorted
	Addresses []netip.AddrPort
	Version   int
	Seen      time.Time // the latest of all sources
}

// Table runs finders and keeps what they see. It is safe for concurrent use.
type Table struct {
	finders []Finder
	log     *slog.Logger

	mu       sync.Mutex
	seen     []map[string]Sighting // by finder, then by Sighting.key
	watchers map[chan struct{}]bool
}

// NewTable makes the table of these finders; Run starts them.
func NewTable(log *slog.Logger, finders ...Finder) *Table {
	t := &Table{finders: finders, log: log, watchers: map[chan struct{}]bool{}}
	for range finders {
		t.seen = append(t.seen, map[string]Sighting{})
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
	for wait := retryFirst; ; wait = min(2*wait, retryMax) {
		began := time.Now()
		err := t.runOnce(ctx, n)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > retryMax {
			wait = retryFirst
		}
		pause := wait + rand.N(wait/2)
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
		delete(t.seen[n], e.key())
	} else {
		t.seen[n][e.key()] = e.Sighting
	}
	t.notify()
}

func (t *Table) clear(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.seen[n]) > 0 {
		clear(t.seen[n])
		t.notify()
	}
}

func (t *Table) notify() {
	for w := range t.watchers {
		select {
		case w <- struct{}{}:
		default: // one is waiting already; it stands for both
		}
	}
}

// Watch gives a channel that holds a token once something may have changed since the last token was
// taken, the first one at once: on each, read Snapshot. Call stop in the end.
func (t *Table) Watch() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	t.mu.Lock()
	t.watchers[c] = true
	t.mu.Unlock()
	return c, func() {
		t.mu.Lock()
		delete(t.watchers, c)
		t.mu.Unlock()
	}
}

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

// merge joins sightings of one ID, and those without ID that share name and an address. One without ID is
// never joined to one with: an address in a spoofed announcement would otherwise lend the spoofer's ID to
// the host that the user typed in.
func merge(sightings []Sighting) []Found {
	// In one order whatever the finders' was, the one to be believed first in front.
	slices.SortFunc(sightings, func(a, b Sighting) int {
		return cmp.Or(rank(a.Source)-rank(b.Source), b.Seen.Compare(a.Seen), cmp.Compare(a.Name, b.Name), slices.CompareFunc(a.Addresses, b.Addresses, netip.AddrPort.Compare))
	})
	var out []Found
	for _, s := range sightings {
		i := slices.IndexFunc(out, func(f Found) bool { return belongs(s, f) })
		if i < 0 {
			out = append(out, Found{ID: s.ID, Name: s.Name, Version: s.Version})
			i = len(out) - 1
		}
		f := &out[i]
		if !slices.Contains(f.Sources, s.Source) {
			f.Sources = append(f.Sources, s.Source)
		}
		for _, a := range s.Addresses {
			if !slices.Contains(f.Addresses, a) { // bounded: each source gives at most 16
				f.Addresses = append(f.Addresses, a)
			}
		}
		f.Version = max(f.Version, s.Version)
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

// rank orders the sources by how well they name a cluster: on the LAN it names itself, in the DNS its
// domain does, and what was typed in is an address.
func rank(s Source) int { return slices.Index([]Source{LANSource, DNSSource, ManualSource}, s) }

func belongs(s Sighting, f Found) bool {
	if !s.ID.IsZero() || !f.ID.IsZero() {
		return s.ID == f.ID
	}
	return s.Name == f.Name && (len(s.Addresses) == 0 || len(f.Addresses) == 0 ||
		slices.ContainsFunc(s.Addresses, func(a netip.AddrPort) bool { return slices.Contains(f.Addresses, a) }))
}
