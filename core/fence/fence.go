//go:build linux

package fence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"kith.dev/core/hostnet"
)

// Fence keeps the table. Its methods may be called from anywhere.
type Fence struct {
	cfg      Config
	kernel   kernel
	readHost func() (hostState, error)

	allowed allowance

	mu      sync.Mutex
	told    bool // Set was called: without, a table of the process before is better than ours
	rel     Relations
	host    hostState
	written *plan    // by this process; nil when what is in the kernel is somebody else's
	size    uint32   // of the tables, as the kernel counts
	limits  *buckets // of the table of limits, as this process wrote it
	limited error    // why there is none
}

// New checks the configuration; nothing is touched.
func New(cfg Config) (*Fence, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Fence{
		cfg: cfg, allowed: allowed,
		kernel:   kernel{open: func() (*nftables.Conn, error) { return nftables.New() }},
		readHost: func() (hostState, error) { return readHost(&netlink.Handle{}) },
	}, nil
}

// Raise makes the table if there is none, closed for all. Call it before any guest can start; a table that an
// earlier process left, and that knows its guests, stays.
func (f *Fence) Raise() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	size, _, err := f.kernel.standing()
	if err != nil || size != 0 {
		return err
	}
	return f.sync()
}

// Set makes the table that of these relations. Nothing is touched when nothing changed.
func (f *Fence) Set(rel Relations) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rel, f.told = rel, true
	host, err := f.readHost()
	if err != nil {
		return err
	}
	f.host = host
	return f.sync()
}

// Run follows what happens at the host until ctx ends: default routes change, and somebody may flush the whole rule set, ours
// included. The table stays when it ends.
func (f *Fence) Run(ctx context.Context) error {
	return watch(ctx, f.cfg.Kernel, f.refresh)
}

// refresh compares the host with what is written.
func (f *Fence) refresh() error {
	err := f.compare()
	if err != nil {
		f.cfg.Log.Warn("the fence around guests is not up to date, trying again", "err", err)
	}
	return err
}

func (f *Fence) compare() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	host, err := f.readHost()
	if err != nil {
		return err
	}
	size, limits, err := f.kernel.standing()
	if err != nil {
		return err
	}
	if !limits {
		f.limits = nil
	}
	lost := size == 0 || f.written != nil && size != f.size
	if lost && f.written != nil {
		f.cfg.Log.Warn("the fence around guests was taken away, putting it up again")
		f.written = nil
	}
	current := f.written != nil && reflect.DeepEqual(host, f.host) && (f.limits != nil || f.limited != nil)
	if !lost && (current || !f.told) {
		return nil
	}
	f.host = host
	return f.sync()
}

// sync writes the plan. Callers hold mu.
func (f *Fence) sync() error {
	is := planOf(f.cfg, f.rel, f.host)
	if err := f.write(is); err != nil {
		return err
	}
	f.limit(is.buckets)
	return nil
}

// limit writes how much guests may open. A kernel without the words for it (nft_connlimit) leaves the fence as it is.
func (f *Fence) limit(is buckets) {
	err := f.kernel.limit(f.cfg, f.allowed, f.limits, is)
	if err != nil && f.limits != nil { // somebody took it away, or part of it, and this came before the news of that
		err = f.kernel.limit(f.cfg, f.allowed, nil, is)
	}
	if err == nil {
		f.limits, f.limited = &is, nil
		return
	}
	if f.limits = nil; f.limited == nil {
		f.cfg.Log.Warn("connections of guests are not limited", "err", err)
	}
	f.limited = err
}

// write makes the fence's own tables those of the plan.
func (f *Fence) write(is plan) error {
	if f.written != nil && reflect.DeepEqual(*f.written, is) {
		return nil
	}
	f.written = nil
	if err := f.kernel.replace(is, f.cfg.Group); err != nil {
		return err
	}
	size, _, err := f.kernel.standing()
	if err != nil {
		return err
	}
	f.written, f.size = &is, size
	return nil
}

const (
	// settle is the shortest time between two looks, so that a burst of events costs two.
	settle = 20 * time.Millisecond
	// again is when to look again after a look that failed.
	again = time.Second
)

// watch has look called now, and after every change of routes and nftables, until ctx ends. A link that goes and takes routes with it,
// of which the kernel says nothing, leaves a router in the set that nobody is sent to.
func watch(ctx context.Context, kernel *hostnet.Changes, look func() error) error {
	around, stop, err := kernel.Listen(hostnet.Routes)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	defer stop()
	tables, forget, err := hostnet.Tables(func([]byte) bool { return true })
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	defer forget()
	for {
		var retry <-chan time.Time
		if err := look(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			retry = time.After(again)
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return nil
		}
		select {
		case _, ok := <-around:
			if !ok {
				return errors.New("fence: the kernel tells of routes no more")
			}
		case _, ok := <-tables:
			if !ok {
				return errors.New("fence: the kernel tells of nftables no more")
			}
		case <-retry:
		case <-ctx.Done():
			return nil
		}
	}
}
