//go:build linux

package fence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"kith.dev/core/base/durable"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/nft"
)

// Fence keeps the tables. Its methods may be called from anywhere.
type Fence struct {
	cfg      Config
	readHost func(wires bool) (hostState, error)
	seek     func(wires, netip.Addr) // has the kernel look who has an address
	narrow   func(link int) error    // has the host answer by a guest's link for its address there alone
	allowed  allowance

	astray astray

	mu            sync.Mutex
	wasSet        bool // Set was called; until then the tables of the process before are kept
	rel           Relations
	fence, limits nft.Keeper
	links         nft.Keeper
	bandwidth     nft.Keeper
	limited       error // why connections are not limited
	bound         error // why guests are not bound to their links
	narrowed      map[int]bool
	seen          sight
	is            plan // that was written last
	before        bool // Config.Mark existed at the start: guests ran here when the process before ended
	kept          kept
}

// New checks the configuration; nothing is touched.
func New(cfg Config) (*Fence, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Fence{
		narrowed: map[int]bool{}, seen: sight{found: map[netip.Addr]guestLink{}, since: map[netip.Addr]time.Time{}, standing: map[string]bool{}},
		cfg: cfg, allowed: allowed, fence: nft.Keeper{Name: Table, Log: cfg.Log}, limits: nft.Keeper{Name: Limits, Log: cfg.Log}, links: nft.Keeper{Name: Links, Log: cfg.Log},
		bandwidth: nft.Keeper{Name: Bandwidth, Log: cfg.Log},
		readHost:  func(wires bool) (hostState, error) { return readHost(&netlink.Handle{}, cfg.Group, wires) },
		seek:      func(w wires, a netip.Addr) { w.seek(&netlink.Handle{}, a) },
		narrow:    narrow,
	}
	if cfg.Mark != "" {
		_, err := os.Stat(cfg.Mark)
		f.before = !errors.Is(err, fs.ErrNotExist)
	}
	return f, nil
}

// mark has the next process know, before it can read the cluster, whether guests are here.
func (f *Fence) mark(here bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cfg.Mark == "" || here == f.before {
		return nil
	}
	change := durable.Remove
	if here {
		change = func(path string) error { return durable.WriteFile(path, nil, 0o600) }
	}
	if err := change(f.cfg.Mark); err != nil {
		return fmt.Errorf("note that guests are here: %w", err)
	}
	f.before = here
	return nil
}

// Raise makes the table, closed for all guests, unless an earlier process left one, which knows its guests and stays. Call it before any
// guest can start.
func (f *Fence) Raise() error { return f.keep() }

// Set writes the tables for these relations, as far as they differ.
func (f *Fence) Set(rel Relations) error {
	f.mu.Lock()
	f.rel, f.wasSet = rel, true
	f.mu.Unlock()
	return errors.Join(f.keep(), f.mark(rel.Plugin.guestsHere()))
}

// Run follows what happens at the host until ctx ends: default routes change, and somebody may flush the whole rule set, ours
// included. The table stays when it ends, and is closed to who is not known where guests are. A link that goes and takes routes with it, of which the kernel says nothing, leaves a
// router in the set that nobody is sent to.
func (f *Fence) Run(ctx context.Context) error {
	kinds := hostnet.Routes | hostnet.Routes6
	if f.cfg.Group == 0 {
		kinds |= hostnet.Links
	}
	around, stop, err := f.cfg.Kernel.Listen(kinds)
	if err == nil {
		defer stop()
		err = errors.Join(nft.Watch(ctx, around, f.refresh, &f.fence, &f.limits, &f.links, &f.bandwidth), f.close())
	}
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

// Kept is nil when the kernel holds the fence that follows from the cluster's state; else the error says why not.
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
// (nft_connlimit) leaves the fence as it is. Where it has none for a bandwidth that a policy bounds, that is an error: no more guests are taken in
// than there were.
func (f *Fence) keep() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.kept.note(f.wasSet, err, f.cfg.Changed) }()
	host, err := f.readHost(f.cfg.Group == 0)
	if err != nil {
		return err
	}
	for _, link := range host.marked {
		if !f.narrowed[link] {
			if err := f.narrow(link); err != nil {
				f.cfg.Log.Warn("this host may tell a guest of its other addresses", "err", err)
			}
			f.narrowed[link] = true
		}
	}
	if f.cfg.Group == 0 {
		f.look(&host)
	}
	is := planOf(f.cfg, f.allowed, f.rel, host)
	if err := f.fence.Keep(is.fence, f.wasSet); err != nil {
		return err
	}
	before := f.limited
	if f.limited = f.limits.Keep(is.limits, f.wasSet); f.limited != nil && before == nil {
		f.cfg.Log.Warn("connections of guests are not limited", "err", f.limited)
	}
	before = f.bound
	if f.bound = f.links.Keep(is.links, f.wasSet); f.bound != nil && before == nil {
		f.cfg.Log.Warn("guests are not bound to their links: they may use IPv6 on them, and deceive neighbours", "err", f.bound)
	}
	f.is = is
	err = f.bandwidth.Keep(is.bandwidth, f.wasSet)
	if err != nil && f.rel.bounded() {
		err = fmt.Errorf("what guests send and receive cannot be bounded as the policy says: %w", err)
	} else {
		err = nil
	}
	return errors.Join(f.renew(is), err)
}

// narrow has ARP tell a guest of no address but that which the host has on its link: of others it could learn where it is.
func narrow(link int) error { return hostnet.Configure(link, map[uint16]uint32{hostnet.ARPIgnore: 1}) }
