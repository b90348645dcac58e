package mdns

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

// Bounds of what strangers on the LAN can make us remember and report.
const (
	maxEntries    = 512
	maxClaims     = 8  // of one instance
	maxPerSender  = 64 // instances announced from one address; more than one only behind a reflector
	minTTL        = 10 * time.Second
	maxTTL        = 75 * time.Minute
	lostLinkGrace = 10 * time.Second
	askAhead      = 3 * time.Second

	strangersBurst  = 128 // newcomers taken in at once: a LAN where everyone starts together
	strangersSecond = 2   // and per second after that
)

// A claim is what one sender said about an instance on one link. Claims of different senders stand side
// by side: who spoofs an announcement adds an address that will fail the handshake, but displaces none.
type claim struct {
	link      linkKey
	sender    netip.Addr
	hello     hello
	since     time.Time
	heard     time.Time
	expires   time.Time
	refreshAt time.Time // when to ask whether it still holds
	refreshes int       // how often we asked
	lost      bool      // its link went away since
}

// refreshAt are fractions of the TTL (RFC 6762 section 5.2). Each cache adds a share of refreshSpread of its
// own, so that one laptop asks first, for all it knows, and the answers refresh everybody's cache.
var refreshAt = [...]float64{0.80, 0.85, 0.90, 0.95}

const refreshSpread = 0.04

func (c *claim) scheduleRefresh(spread float64) {
	if c.refreshes >= len(refreshAt) {
		c.refreshAt = c.expires
		return
	}
	share := refreshAt[c.refreshes] + spread*refreshSpread
	c.refreshAt = c.heard.Add(time.Duration(share * float64(c.expires.Sub(c.heard))))
}

type entry struct {
	claims []claim // the one that appeared last first
}

// cache remembers the instances on the LAN, and which of them are still to be reported. It is not safe
// for concurrent use.
type cache struct {
	trusted  func(identity.ID) bool // peers with a contract: not evicted, not held back
	spread   float64                // 0 to 1
	admit    *rate.Limiter
	entries  map[identity.ID]*entry
	reported map[identity.ID]discovery.Sighting
	dirty    []identity.ID // to be reported, in order, each once
	isDirty  map[identity.ID]bool
	refused  bool // somebody was not let in since this was last reset
}

func newCache(trusted func(identity.ID) bool) *cache {
	return &cache{
		trusted:  trusted,
		spread:   rand.Float64(),
		admit:    rate.NewLimiter(strangersSecond, strangersBurst),
		entries:  map[identity.ID]*entry{},
		reported: map[identity.ID]discovery.Sighting{},
		isDirty:  map[identity.ID]bool{},
	}
}

// hear takes in an announcement, or refuses it when there are too many strangers.
func (b *cache) hear(now time.Time, link linkKey, sender netip.Addr, h hello) {
	e := b.entries[h.ID]
	if e == nil {
		if !b.makeRoom(now, h.ID, sender) {
			b.refused = true
			return
		}
		e = &entry{}
		b.entries[h.ID] = e
	}
	i := slices.IndexFunc(e.claims, func(c claim) bool { return c.link == link && c.sender == sender })
	if i < 0 {
		if len(e.claims) == maxClaims {
			stalest := slices.MinFunc(e.claims, func(a, b claim) int { return a.heard.Compare(b.heard) })
			e.claims = slices.DeleteFunc(e.claims, func(c claim) bool { return c.link == stalest.link && c.sender == stalest.sender })
		}
		e.claims = slices.Insert(e.claims, 0, claim{link: link, sender: sender, since: now})
		i = 0
	}
	c := &e.claims[i]
	c.hello, c.heard, c.refreshes, c.lost = h, now, 0, false
	c.expires = now.Add(min(max(h.ttl, minTTL), maxTTL))
	c.scheduleRefresh(b.spread)
	b.mark(h.ID)
}

func (b *cache) makeRoom(now time.Time, id identity.ID, sender netip.Addr) bool {
	if b.trusted(id) {
		return len(b.entries) < maxEntries || b.evict()
	}
	from := 0
	for _, e := range b.entries {
		if slices.ContainsFunc(e.claims, func(c claim) bool { return c.sender == sender }) {
			from++
		}
	}
	if from >= maxPerSender || !b.admit.AllowN(now, 1) {
		return false
	}
	return len(b.entries) < maxEntries || b.evict()
}

// evict drops the stranger not heard of for longest.
func (b *cache) evict() bool {
	var oldest identity.ID
	var heard time.Time
	for id, e := range b.entries {
		last := e.heard()
		if !b.trusted(id) && (oldest.IsZero() || last.Before(heard)) {
			oldest, heard = id, last
		}
	}
	if oldest.IsZero() {
		return false
	}
	b.remove(oldest)
	return true
}

func (b *cache) remove(id identity.ID) {
	delete(b.entries, id)
	b.mark(id)
}

// bye takes in a goodbye. It counts for the claims of that interface and of lost ones, and only from a sender who made
// one, or from an address that one names: others cannot say goodbye for somebody.
func (b *cache) bye(link linkKey, sender netip.Addr, id identity.ID) {
	e := b.entries[id]
	if e == nil {
		return
	}
	entitled := slices.ContainsFunc(e.claims, func(c claim) bool {
		return (c.link.index == link.index || c.lost) && (c.sender == sender ||
			slices.ContainsFunc(c.hello.addresses, func(a netip.AddrPort) bool { return a.Addr() == sender.WithZone("") }))
	})
	if !entitled {
		return
	}
	e.claims = slices.DeleteFunc(e.claims, func(c claim) bool { return c.link.index == link.index || c.lost })
	b.dropIfEmpty(id, e)
}

func (b *cache) dropIfEmpty(id identity.ID, e *entry) {
	if len(e.claims) == 0 {
		b.remove(id)
	} else {
		b.mark(id)
	}
}

// linkLost lets what was learned on a link go soon, unless it is heard there again: a link that only
// flapped costs nothing, another LAN is not mixed up with the last one for long.
func (b *cache) linkLost(now time.Time, link linkKey) {
	for _, e := range b.entries {
		for i := range e.claims {
			c := &e.claims[i]
			if c.link != link {
				continue
			}
			c.lost = true
			if until := now.Add(lostLinkGrace); c.expires.After(until) {
				c.expires, c.refreshAt = until, until
			}
		}
	}
}

// sweep removes what expired and returns whom to ask again, per link, and when to be called next.
func (b *cache) sweep(now time.Time) (ask map[linkKey][]identity.ID, next time.Time) {
	var window time.Duration
	if b.anyDue(now) {
		window = askAhead // one packet asks for several
	}
	for id, e := range b.entries {
		before := len(e.claims)
		e.claims = slices.DeleteFunc(e.claims, func(c claim) bool { return !now.Before(c.expires) })
		if len(e.claims) < before {
			b.dropIfEmpty(id, e)
		}
		for i := range e.claims {
			c := &e.claims[i]
			if c.refreshAt.Before(c.expires) && !now.Add(window).Before(c.refreshAt) {
				c.refreshes++
				c.scheduleRefresh(b.spread)
				if !e.outlived(*c) {
					if ask == nil {
						ask = map[linkKey][]identity.ID{}
					}
					ask[c.link] = append(ask[c.link], id)
				}
			}
			next = discovery.Earlier(next, c.refreshAt)
		}
	}
	return ask, next
}

// asked takes notice of somebody else's question about an instance: the answer will be ours as well.
func (b *cache) asked(now time.Time, link linkKey, id identity.ID) {
	e := b.entries[id]
	if e == nil {
		return
	}
	for i := range e.claims {
		c := &e.claims[i]
		later := now.Add(askAhead + time.Second)
		if c.link == link && c.refreshAt.Before(later) && later.Before(c.expires) {
			c.refreshAt = later
		}
	}
}

func (b *cache) anyDue(now time.Time) bool {
	for _, e := range b.entries {
		for _, c := range e.claims {
			if c.refreshAt.Before(c.expires) && !now.Before(c.refreshAt) {
				return true
			}
		}
	}
	return false
}

// outlived says that IPv4 tells the same on the same interface, so IPv6 need not be asked.
func (e *entry) outlived(c claim) bool {
	return c.link.v6 && slices.ContainsFunc(e.claims, func(other claim) bool {
		return other.link.index == c.link.index && !other.link.v6
	})
}

// known lists the instances that need not answer a question on this link.
func (b *cache) known(now time.Time, link linkKey) []knownAnswer {
	var known []knownAnswer
	for id, e := range b.entries {
		for _, c := range e.claims {
			// Half of the TTL that its owner uses, else the owner does not take it for known.
			if left := c.expires.Sub(now); c.link == link && left >= recordTTL/2+time.Second {
				known = append(known, knownAnswer{id, left})
				break
			}
		}
	}
	return known
}

func (b *cache) mark(id identity.ID) {
	_, reported := b.reported[id]
	if b.entries[id] == nil && !reported {
		// Came and went before anybody was told: nobody needs to know.
		if b.isDirty[id] {
			delete(b.isDirty, id)
			b.dirty = slices.DeleteFunc(b.dirty, func(d identity.ID) bool { return d == id })
		}
		return
	}
	if !b.isDirty[id] {
		b.isDirty[id] = true
		b.dirty = append(b.dirty, id)
	}
}

// pending gives the next event worth reporting; after its delivery, delivered must be called.
func (b *cache) pending() (discovery.Event, bool) {
	for len(b.dirty) > 0 {
		id := b.dirty[0]
		old, was := b.reported[id]
		e := b.entries[id]
		if e == nil && was {
			return discovery.Event{Sighting: old, Gone: true}, true
		}
		if e != nil {
			s := e.sighting(id)
			if !was || discovery.WorthTelling(old, s) {
				return discovery.Event{Sighting: s}, true
			}
		}
		b.undirty(id)
	}
	return discovery.Event{}, false
}

func (b *cache) delivered(ev discovery.Event) {
	if ev.Gone {
		delete(b.reported, ev.ID)
	} else {
		b.reported[ev.ID] = ev.Sighting
	}
	b.undirty(ev.ID)
	b.mark(ev.ID) // it may have changed while the event waited; pending finds out
}

func (b *cache) undirty(id identity.ID) {
	delete(b.isDirty, id)
	if i := slices.Index(b.dirty, id); i >= 0 {
		b.dirty = slices.Delete(b.dirty, i, i+1)
	}
}

// sighting joins the claims: the name told last, and addresses from each in turn, so that a spoofer's many
// leave room for the real one. What was said on a link that went away counts only until the instance is heard elsewhere, or there again.
func (e *entry) sighting(id identity.ID) discovery.Sighting {
	claims := slices.SortedStableFunc(slices.Values(e.claims), func(a, b claim) int { return b.since.Compare(a.since) })
	if slices.ContainsFunc(claims, func(c claim) bool { return !c.lost }) {
		claims = slices.DeleteFunc(claims, func(c claim) bool { return c.lost })
	}
	s := discovery.Sighting{ID: id, Source: discovery.LANSource, Name: claims[0].hello.Name}
	for turn := range discovery.MaxAddresses {
		for _, c := range claims {
			if turn < len(c.hello.addresses) && len(s.Addresses) < discovery.MaxAddresses {
				if a := c.zoned(c.hello.addresses[turn]); !slices.Contains(s.Addresses, a) {
					s.Addresses = append(s.Addresses, a)
				}
			}
		}
	}
	s.Seen = e.heard()
	return s
}

// heard is when the instance was announced last.
func (e *entry) heard() time.Time {
	return slices.MaxFunc(e.claims, func(a, b claim) int { return a.heard.Compare(b.heard) }).heard
}

// zoned adds the interface to a link-local address, without which it cannot be dialled.
func (c claim) zoned(a netip.AddrPort) netip.AddrPort {
	if a.Addr().Is6() && a.Addr().IsLinkLocalUnicast() {
		return netip.AddrPortFrom(a.Addr().WithZone(c.link.zone), a.Port())
	}
	return a
}
