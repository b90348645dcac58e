//go:build linux

package fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"

	"kith.dev/core/hostnet"
	"kith.dev/core/nft"
)

// Table is the name of both nftables tables: the fence for IPv4, and that for IPv6 or one that drops guests' IPv6.
const Table = "kith-fence"

// Fence keeps the tables. Its methods may be called from anywhere.
type Fence struct {
	cfg      Config
	readHost func() (hostState, error)
	allowed  allowance

	mu            sync.Mutex
	told          bool // Set was called: without, the tables of the process before are better than ours
	rel           Relations
	fence, limits nft.Keeper
	limited       error // why connections are not limited
	kept          kept
}

// New checks the configuration; nothing is touched.
func New(cfg Config) (*Fence, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Fence{
		cfg: cfg, allowed: allowed, fence: nft.Keeper{Name: Table, Log: cfg.Log}, limits: nft.Keeper{Name: Limits, Log: cfg.Log},
		readHost: func() (hostState, error) { return readHost(&netlink.Handle{}) },
	}, nil
}

// Raise makes the table if there is none, closed for all. Call it before any guest can start; a table that an
// earlier process left, and that knows its guests, stays.
func (f *Fence) Raise() error { return f.keep() }

// Set makes the table that of these relations. Nothing is touched when nothing changed.
func (f *Fence) Set(rel Relations) error {
	f.mu.Lock()
	f.rel, f.told = rel, true
	f.mu.Unlock()
	return f.keep()
}

// Run follows what happens at the host until ctx ends: default routes change, and somebody may flush the whole rule set, ours
// included. The table stays when it ends. A link that goes and takes routes with it, of which the kernel says nothing, leaves a
// router in the set that nobody is sent to.
func (f *Fence) Run(ctx context.Context) error {
	around, stop, err := f.cfg.Kernel.Listen(hostnet.Routes | hostnet.Routes6)
	if err == nil {
		defer stop()
		err = nft.Watch(ctx, around, f.refresh, &f.fence, &f.limits)
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// Kept says why the kernel does not hold the fence as it follows from the cluster; nil when it does.
func (f *Fence) Kept() error { return f.kept.why() }

// refresh compares the host with what is written.
func (f *Fence) refresh() error {
	err := f.keep()
	if err != nil {
		f.cfg.Log.Warn("the fence around guests is not up to date, trying again", "err", err)
	}
	return err
}

// keep has the kernel hold what follows from what was told, and from the host as it is. A kernel without the words for limits
// (nft_connlimit) leaves the fence as it is.
func (f *Fence) keep() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.kept.note(f.told, err, f.cfg.Changed) }()
	host, err := f.readHost()
	if err != nil {
		return err
	}
	is := planOf(f.cfg, f.allowed, f.rel, host)
	if err := f.fence.Keep(is.fence, f.told); err != nil {
		return err
	}
	before := f.limited
	if f.limited = f.limits.Keep(is.limits, f.told); f.limited != nil && before == nil {
		f.cfg.Log.Warn("connections of guests are not limited", "err", f.limited)
	}
	return nil
}
