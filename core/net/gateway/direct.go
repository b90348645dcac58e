package gateway

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"kith.dev/core/net/gateway/datapath"
	"kith.dev/core/net/netplan"
)

// Direct is another provider of a home, to which home introduced this one: home's guests here and there may reach each other past home.
type Direct struct {
	ID        string // of the other provider
	PublicKey Key
	Guests    netip.Prefix     // home's guests there, one of the ranges of its address space
	Guests6   netip.Prefix     // and of IPv6; none without
	Endpoints []netip.AddrPort // where home reaches its WireGuard
}

// validateDirect says what is wrong with what a home said of its other providers.
func (p Peer) validateDirect() (errs []error) {
	if len(p.Direct) > netplan.MaxDirect {
		return []error{fmt.Errorf("%d direct ways, at most %d are taken", len(p.Direct), netplan.MaxDirect)}
	}
	if len(p.Direct) > 0 && (!p.Here.IsValid() || p.Guests.Real.IsValid()) {
		errs = append(errs, errors.New("direct ways are for guests here that have addresses of the agreed range"))
	}
	for i, d := range p.Direct {
		wrong := func(format string, about ...any) {
			errs = append(errs, fmt.Errorf("direct way to %.64s: "+format, append([]any{d.ID}, about...)...))
		}
		if d.PublicKey.IsZero() || d.PublicKey == p.PublicKey {
			wrong("it has no WireGuard key of its own")
		}
		if !slices.Contains(p.Space, d.Guests) {
			wrong("%s is no range of the address space", d.Guests)
		}
		if d.Guests6.IsValid() && !slices.Contains(p.IPv6.Space, d.Guests6) {
			wrong("%s is no range of the address space", d.Guests6)
		}
		if slices.ContainsFunc(p.Direct[:i], func(o Direct) bool { return o.PublicKey == d.PublicKey || o.Guests == d.Guests }) {
			wrong("named twice")
		}
		if len(d.Endpoints) == 0 || len(d.Endpoints) > netplan.MaxEndpoints {
			wrong("%d endpoints, want 1 to %d", len(d.Endpoints), netplan.MaxEndpoints)
		}
		for _, e := range d.Endpoints {
			if err := netplan.CheckEndpoint(e); err != nil {
				wrong("%w", err)
			}
		}
	}
	return errs
}

// directWay is a Direct with its state, which stays while it is the same.
type directWay struct {
	Direct
	way            datapath.Way
	handle, called netip.Addr // what we call the other, and it us
	taken          bool       // another way has the handle
	mtu            int
	at             int    // of Endpoints: the one that is tried, or was when it answered
	asked          uint32 // number of the last question, and when it was asked
	last           time.Time
	pause          time.Duration // after it, until the next
	used           time.Time     // when it was wanted last
	since          time.Time     // when it came up or went down
}

// A direct way is asked for an answer each askEvery while it is in use. After unanswered questions in a row packets go by home again, within
// four seconds, and the way is asked with pauses of up to askLeast. One that nobody wanted for calm is not asked, nor used before it answered anew:
// it costs nothing.
const (
	askEvery   = time.Second
	askLeast   = 15 * time.Second
	unanswered = 3
	calm       = 2 * time.Minute
)

// keepDirect is what r has of direct ways when it is set to p. Callers hold mu.
func (g *Gateway) keepDirect(r *route, p Peer) (list []*directWay) {
	for _, d := range p.Direct {
		if d.PublicKey == g.key {
			continue
		}
		w := &directWay{mtu: DefaultMTU, pause: askEvery, handle: directHandle(p.PublicKey, g.key, d.PublicKey), called: directHandle(p.PublicKey, d.PublicKey, g.key)}
		w.way.Wake = g.wake
		if i := slices.IndexFunc(r.direct, func(o *directWay) bool { return o.handle == w.handle && o.PublicKey == d.PublicKey }); i >= 0 {
			w = r.direct[i]
		}
		if !slices.Equal(w.Endpoints, d.Endpoints) {
			w.at, w.last = 0, time.Time{}
		}
		w.Direct = d
		list = append(list, w)
	}
	return list
}

// wake has the direct ways looked at. It is called in the data path.
func (g *Gateway) wake() {
	select {
	case g.wanted <- struct{}{}:
	default:
	}
}

// directDomain keeps the names that are made here apart from all else that is hashed.
const directDomain = "kith: the handle of a direct way, v1\x00"

// directHandle is what the holder of one key calls that of another inside WireGuard, for the guests of a home: of a block in which no
// netplan.Pair.Handle lies, as no range of guests is in 0.0.0.0/8. All three keys are known at both ends, so nobody has to say it.
func directHandle(home, by, of Key) netip.Addr {
	sum := sha256.Sum256(slices.Concat([]byte(directDomain), home[:], by[:], of[:]))
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 0xf<<28|binary.BigEndian.Uint32(sum[:])>>12)
	return netip.AddrFrom4(a)
}

// shareHandles has the first of two ways with the same handle keep it. One in ten thousand laptops with fourteen ways has such a pair, and
// whoever sees to it that there is one loses a way past himself. Callers hold mu.
func (g *Gateway) shareHandles() {
	has := map[netip.Addr]bool{}
	for _, p := range g.allDirect() {
		p.taken = has[p.handle]
		has[p.handle] = true
	}
}

// allDirect lists the direct ways, always in the same order. Callers hold mu.
func (g *Gateway) allDirect() (list []*directWay) {
	for _, id := range slices.Sorted(maps.Keys(g.peers)) {
		list = append(list, g.peers[id].direct...)
	}
	return list
}

// ways are the peer's direct ways as the data path takes them.
func (r *route) ways() (list []datapath.Direct) {
	for _, p := range r.direct {
		if !p.taken {
			list = append(list, p.path())
		}
	}
	return list
}

func (p *directWay) path() datapath.Direct {
	return datapath.Direct{Handle: p.handle, Called: p.called, Guests: p.Guests, Guests6: p.Guests6, MTU: p.mtu, Way: &p.way}
}

// remote is what WireGuard has of the holder of a key: where it is, and what we call it.
type remote struct {
	endpoint netip.AddrPort
	handles  []netip.Addr
}

// remotes is what WireGuard is to have. Where a peer of this cluster has the key, nobody else's word on where it is counts. Callers hold mu.
func (g *Gateway) remotes() map[Key]remote {
	want := make(map[Key]remote, len(g.peers))
	for _, r := range g.peers {
		want[r.PublicKey] = remote{r.Endpoint, []netip.Addr{r.Handle()}}
	}
	for _, p := range g.allDirect() {
		if p.taken {
			continue
		}
		it := want[p.PublicKey]
		if it.handles = append(it.handles, p.handle); !g.isPeers(p.PublicKey) && !it.endpoint.IsValid() {
			it.endpoint = p.Endpoints[p.at]
		}
		want[p.PublicKey] = it
	}
	return want
}

// isPeers reports whether a key is that of a peer of this cluster. Callers hold mu.
func (g *Gateway) isPeers(k Key) bool {
	for _, r := range g.peers {
		if r.PublicKey == k {
			return true
		}
	}
	return false
}

// look decides which direct ways packets take from now on, and which are asked now. next is when to look again; zero: when one is wanted.
// Callers hold mu.
func (g *Gateway) look(now time.Time) (ask []*directWay, next time.Time, changed bool) {
	for _, p := range g.allDirect() {
		if p.way.Wanted() {
			p.used = now
		}
		if p.way.Asked() {
			p.pause = askEvery // whoever asks can answer
		}
		unused := now.Sub(p.used)
		if p.taken || unused > calm {
			changed = p.turn(false, now) || changed
			if p.asked == p.way.Answered.Load() {
				p.asked++ // that was long ago
			}
			continue
		}
		left := p.asked - p.way.Answered.Load()
		switch up := p.way.Up.Load(); {
		case up && left >= unanswered:
			changed = p.turn(false, now) || changed
			p.pause = 0
		case !up && left == 0 && p.asked > 0:
			changed = p.turn(true, now) || changed
			p.pause = askEvery
		}
		due := p.last.Add(p.pause)
		switch up := p.way.Up.Load(); {
		case up && unused > unanswered*askEvery: // whether it answers, matters to nobody
			due = p.used.Add(calm)
		case !due.After(now):
			p.asked++
			p.last, ask = now, append(ask, p)
			if p.pause = max(p.pause, askEvery); !up && p.asked > 1 {
				p.pause = min(2*p.pause, askLeast)
			}
			due = now.Add(p.pause)
		}
		if next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return ask, next, changed
}

// turn reports whether that changes anything.
func (p *directWay) turn(up bool, now time.Time) bool {
	if p.way.Up.Swap(up) == up {
		return false
	}
	p.since = now
	return true
}

// DirectStats is what is known of a way past a home.
type DirectStats struct {
	ID    string // of the other provider
	State DirectState
	Since time.Time // of the state; zero: since kithd started
}

// DirectState is one of a closed set.
type DirectState string

// The states of a direct way.
const (
	DirectUp     DirectState = "direct"  // packets go past home
	DirectByHome DirectState = "by-home" // they go by home, as the other provider does not answer
	DirectIdle   DirectState = "idle"    // there were none lately
)

func (r *route) directStats() (list []DirectStats) {
	for _, p := range r.direct {
		s := DirectStats{ID: p.ID, State: DirectByHome, Since: p.since}
		switch {
		case p.way.Up.Load():
			s.State = DirectUp
		case time.Since(p.used) > calm:
			s.State = DirectIdle
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b DirectStats) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
