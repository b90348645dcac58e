package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"kith.dev/core/base/backoff"
	"kith.dev/core/base/suspend"
	"kith.dev/core/net/gateway/datapath"
	"kith.dev/core/net/gateway/noderoute"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// settle is the shortest time between two looks at the host, so that a burst of events costs two.
const settle = 50 * time.Millisecond

// retry is the pause before what failed is tried again; what fails again and again waits twice as long each time, up to
// resync.
const retry = 250 * time.Millisecond

// watch keeps the host's state what it should be, until ctx ends or the device is taken away.
func (g *Gateway) watch(ctx context.Context, w *wireguard) error {
	events, stop, err := g.cfg.Kernel.Listen(hostnet.All) // ours are among them; looking again after those finds nothing to do
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	defer stop()
	tick := time.NewTicker(resync)
	defer tick.Stop()
	seen, pause := watcher{last: time.Now()}, backoff.Doubling{First: retry, Most: resync}
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { g.watchDirect(ctx, w) })
	defer func() { cancel(); asking.Wait() }()
	for {
		var again <-chan time.Time
		if g.refresh(w, &seen) {
			pause.Reset()
		} else {
			again = time.After(pause.Next())
		}
		g.listen(time.Now())
		g.tell()
		g.tellOverlaps(&seen)
		select {
		case <-ctx.Done():
		case <-time.After(settle):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.dev.Wait():
			return errors.New("gateway: the tunnel device was closed or removed")
		case _, ok := <-events:
			if !ok {
				events = nil // the looks that are taken anyway go on
			}
		case <-w.tooBig:
		case <-again:
		case <-tick.C:
		}
	}
}

// watcher remembers what the host looked like.
type watcher struct {
	last  time.Time
	paths map[Key]string // how each peer is reached
	stale bool           // the socket has to be opened again

	lapped   map[string][]netip.Prefix // what was told of overlaps last, and when
	lappedAt time.Time
}

// refresh compares the host with what is wanted. Nothing happens when nothing changed. False: not all of it could be
// done, for example because the kernel broke a list off when something changed under it.
func (g *Gateway) refresh(w *wireguard, seen *watcher) (complete bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	complete = true
	if err := g.syncLocked(); err != nil {
		level := slog.LevelWarn
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			level = slog.LevelDebug
		}
		g.cfg.Log.Log(context.Background(), level, "routes are not complete, trying again", "err", err)
		complete = false
	}
	now := time.Now()
	woke := suspend.Between(seen.last, now)
	seen.last = now
	paths, moved := map[Key]string{}, seen.stale
	for k, endpoint := range w.endpoints() {
		if g.carries(endpoint) { // whose connection has a way of its own
			continue
		}
		paths[k] = hostnet.Way(endpoint.Addr())
		if was, ok := seen.paths[k]; ok && was != paths[k] {
			moved = true
		}
	}
	seen.paths, seen.stale = paths, false
	if moved || woke {
		g.cfg.Log.Debug("the way to the peers changed", "moved", moved, "woke", woke)
		if err := w.rebind(); err != nil {
			g.cfg.Log.Warn("UDP socket not opened again, trying later", "err", err)
			seen.stale, complete = true, false
		}
		if woke {
			for k := range w.told {
				w.expire(k) // the others gave these keys up while we slept, and our own clock for them stood still
			}
		}
		for _, r := range g.peers {
			g.greet(r.Peer)
		}
	}
	return complete
}

// syncLocked brings MTUs, table and routes up to date. Callers hold mu.
func (g *Gateway) syncLocked() error { return hostnet.Whole(g.syncOnce) }

func (g *Gateway) syncOnce() error {
	w := g.live
	if w == nil {
		return nil
	}
	endpoints := w.endpoints()
	changed := false
	for _, r := range g.peers {
		ep := endpoints[r.PublicKey]
		if !ep.IsValid() {
			continue
		}
		path, err := hostnet.PathMTU(ep)
		if err != nil { // no route at the moment: keep what was known
			continue
		}
		if mtu := tunnelMTU(path, ep.Addr()); mtu != r.mtu {
			g.cfg.Log.Debug("path MTU", "peer", r.Name, "path", path, "tunnel", mtu)
			r.mtu, changed = mtu, true
		}
	}
	for _, p := range g.allDirect() {
		ep := endpoints[p.PublicKey]
		if !ep.IsValid() {
			continue
		}
		if path, err := hostnet.PathMTU(ep); err == nil && tunnelMTU(path, ep.Addr()) != p.mtu {
			p.mtu, changed = tunnelMTU(path, ep.Addr()), true
		}
	}
	host, lan, err := hostnet.Own(w.node.Index)
	if err != nil {
		return err
	}
	if !slices.Equal(host, g.around.Own) || !slices.Equal(lan, g.around.LAN) {
		g.around.Own, g.around.LAN, changed = host, lan, true
	}
	if changed {
		g.rebuild()
	}
	inUse, err := hostnet.InUse(g.cfg.Device, g.cfg.Guests)
	if err != nil {
		return err
	}
	g.lapped = g.overlapping(inUse)
	return w.node.Sync(g.wantedRoutes(endpoints, inUse))
}

// tunnelMTU is how large a pod's packet may be so that the outer one fits the path.
func tunnelMTU(path int, outer netip.Addr) int {
	overhead := 20 + 8 + 32 // IPv4, UDP, WireGuard
	if outer.Unmap().Is6() {
		overhead += 20
	}
	room := path - overhead
	if room >= DefaultMTU+datapath.Header {
		return DefaultMTU
	}
	return max(room&^15-datapath.Header, minMTU) // WireGuard pads to 16 bytes below the device's MTU
}

// wantedRoutes leaves out ranges of which this host needs an address for something else: what it sends there must not
// come to a peer, and shall go where it went before; this cluster's own pods reach their guests elsewhere by these addresses nevertheless.
// When the host moved to where such a range is a real network, the tunnel's own packets lead around it. Tenants are not touched by
// where the host is.
func (g *Gateway) wantedRoutes(endpoints map[Key]netip.AddrPort, inUse []netip.Prefix) (into []noderoute.Route, around []netip.Addr, tenants []noderoute.Tenant) {
	at := g.reachedAt(endpoints)
	for _, r := range g.peers {
		addressed := r.Here.IsValid() && !r.Guests.Real.IsValid() // its guests here have addresses of the range
		for _, p := range r.Ranges() {
			to := noderoute.Route{To: p, MTU: r.mtu}
			pods := g.cfg.Pods
			if p.Addr().Is6() {
				if !g.six() {
					continue
				}
				to.MTU, pods = mtu6(r.mtu), g.cfg.IPv6.Pods
			}
			switch free := netplan.Free(p, inUse); {
			case (p == r.Here || p == r.IPv6.Here) && !(addressed && free):
			case !free && slices.ContainsFunc(r.Onward, func(o netplan.Onward) bool { return o.Network == p }): // as of those here
			case free: // a range of guests here, too, but for those that are there: nowhere else is one that ended
				into = append(into, to)
				for _, a := range at {
					if p.Contains(a) {
						around = append(around, a)
					}
				}
			default:
				to.Pods = pods
				into = append(into, to)
			}
		}
		for _, o := range r.Onward {
			t := noderoute.Tenant{From: o.Network}
			for _, p := range o.Space {
				t.To = append(t.To, noderoute.Route{To: p, MTU: r.mtu})
			}
			tenants = append(tenants, t)
		}
		if !addressed {
			continue
		}
		t := noderoute.Tenant{From: r.Here}
		for _, p := range r.Space {
			t.To = append(t.To, noderoute.Route{To: p, MTU: r.mtu})
		}
		if g.six() && r.IPv6.Here.IsValid() {
			t.From6 = r.IPv6.Here
			for _, p := range r.IPv6.Space {
				t.To = append(t.To, noderoute.Route{To: p, MTU: mtu6(r.mtu)})
			}
		}
		tenants = append(tenants, t)
	}
	return into, around, tenants
}

// mtu6 is how large a packet of IPv6 may be where the path has room for one of IPv4 of that size: what each link must carry of IPv6 it may
// always be (RFC 8200, section 5), and the outer packet is fragmented.
func mtu6(mtu int) int { return max(mtu, datapath.LeastMTU6) }
