package dns

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

const (
	maxDomains     = 64               // that are configured
	maxFollowed    = 256              // names of Peers
	maxLookups     = 8                // at a time
	lookupDeadline = 30 * time.Second // for all questions about one name
	settle         = time.Second      // after news of the network, until its name servers are asked
	maxSpread      = 10 * time.Second // at most, after records expired: not all who follow a zone ask at once
	againLeast     = 5 * time.Second  // between two look-ups of a name, whatever the news
)

// Finder finds clusters by names in the DNS (RFC 2782):
//
//	_kith._tcp.example.com.      SRV  0 0 6450 lab.example.com.
//	_kith._tcp.lab.example.com.  TXT  "v=1" "id=<compact ID>" "name=lab"
//	lab.example.com.             A/AAAA
//
// The TXT record is looked up at _kith._tcp.<target>, because one domain may name several clusters, and
// there it meets no SPF or other record; when the target is the domain itself, it lies at the SRV record's
// name, as DNS-SD has it. In a domain that is searched a target without a TXT record is no cluster: it has no ID to be known by.
//
// Names of two kinds are looked up: domains, which may name anybody, and names by which a Peer was added, whose addresses are
// followed. Each question is asked again when its answer expires (see memory), or the network changes, and not before.
type Finder struct {
	domains []Followed
	port    uint16 // of hosts that are named without one
	ask     *resolver
	log     *slog.Logger

	changed  func()
	mu       sync.Mutex
	troubles []Trouble // by name
	followed []Followed
	again    bool          // what was answered on another network may be answered otherwise
	news     chan struct{} // holds a token when one of those changed
}

// Followed is a name, and whom it shall lead to; the zero ID is whoever its records name.
type Followed struct {
	Name
	ID identity.ID
}

// Config is what the finder needs.
type Config struct {
	Domains []string // to search
	Port    uint16   // of the peer API, where a name without SRV records does not say
	// Servers ("192.0.2.53:53") are those of the system's resolv.conf when none are given; it is read anew for every
	// question, since laptops move.
	Servers []string
	Changed func() // called when Troubles has another answer; may be nil
	Log     *slog.Logger
}

// Trouble is a name that cannot be looked up.
type Trouble struct {
	Name string
	Why  error // what was asked, of whom, and what came of it
}

// New makes the finder for these domains.
func New(cfg Config) (*Finder, error) {
	if len(cfg.Domains) > maxDomains {
		return nil, fmt.Errorf("discovery by DNS: %d domains are too many, %d at most", len(cfg.Domains), maxDomains)
	}
	f := &Finder{port: cfg.Port, ask: newResolver(cfg.Servers), changed: cfg.Changed, log: cfg.Log, news: make(chan struct{}, 1)}
	if f.changed == nil {
		f.changed = func() {}
	}
	for _, text := range cfg.Domains {
		name, err := ParseName(text)
		if err == nil && name.Port != 0 {
			err = fmt.Errorf("%q has a port", text)
		}
		if err != nil {
			return nil, fmt.Errorf("discovery by DNS: %w: it must be a domain", err)
		}
		f.domains = append(f.domains, Followed{Name: name})
	}
	return f, nil
}

func (f *Finder) String() string { return "DNS" }

// Follow replaces the names of Peers. It returns at once.
func (f *Finder) Follow(names []Followed) {
	names = names[:min(len(names), maxFollowed)]
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.followed, names) {
		f.followed = slices.Clone(names)
		f.tell()
	}
}

// Again schedules all look-ups anew, soon: after a change of networks or name servers, or a sleep of this machine.
func (f *Finder) Again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.again = true
	f.tell()
}

// Troubles lists the names that cannot be looked up now.
func (f *Finder) Troubles() []Trouble {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.troubles)
}

func (f *Finder) tell() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// lookup is what is known of one name.
type lookup struct {
	Followed
	due     time.Time // zero: now
	began   time.Time
	busy    bool
	outdone bool // the result under way is of a former network
	failing error
	found   []discovery.Sighting
}

type lookedUp struct {
	of    *lookup
	found []discovery.Sighting
	again time.Time
	err   error
}

// Run looks names up, again whenever their records expire, and reports the clusters that they name until ctx ends. If a look-up fails the last
// result stays for a day.
func (f *Finder) Run(ctx context.Context, events chan<- discovery.Event) error {
	told := map[identity.ID]discovery.Sighting{}
	names := map[Followed]*lookup{}
	results := make(chan lookedUp)
	running := 0
	defer func() {
		for ; running > 0; running-- {
			<-results
		}
	}()
	f.tell() // what was said before counts
	watching := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.news:
			f.renew(names)
		case r := <-results:
			running--
			f.take(r)
		case <-timer.C:
		}
		if !watching && len(names) > 0 {
			watching = true
			go f.watchResolvConf(ctx)
		}
		f.note(names)
		for _, e := range changes(told, union(names)) {
			select {
			case <-ctx.Done():
				return nil
			case events <- e:
			}
		}
		now, next := time.Now(), time.Time{}
		for _, n := range names {
			switch {
			case n.busy:
			case n.due.After(now):
				next = discovery.Earlier(next, n.due)
			case running < maxLookups: // else the end of one of those brings us back
				running++
				n.busy, n.began = true, now
				go func() { results <- f.lookUp(ctx, n) }()
			}
		}
		timer.Stop()
		if len(names) > 0 && !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// renew brings names up to what is to be looked up now.
func (f *Finder) renew(names map[Followed]*lookup) {
	f.mu.Lock()
	wanted, again := slices.Concat(f.domains, f.followed), f.again
	f.again = false
	f.mu.Unlock()
	for f := range names {
		if !slices.Contains(wanted, f) {
			delete(names, f) // if it is being looked up, nobody cares
		}
	}
	for _, f := range wanted {
		if names[f] == nil {
			names[f] = &lookup{Followed: f}
		}
	}
	if !again {
		return
	}
	f.ask.expire()
	now := time.Now()
	for _, n := range names {
		n.outdone = n.busy
		n.due = later(now.Add(settle), n.began.Add(againLeast))
	}
}

// note keeps which names are in trouble, and says so when they are others.
func (f *Finder) note(names map[Followed]*lookup) {
	var now []Trouble
	for _, n := range names {
		if n.failing != nil {
			now = append(now, Trouble{n.Name.String(), n.failing})
		}
	}
	slices.SortFunc(now, func(a, b Trouble) int { return cmp.Compare(a.Name, b.Name) })
	now = slices.CompactFunc(now, func(a, b Trouble) bool { return a.Name == b.Name })
	f.mu.Lock()
	same := slices.EqualFunc(f.troubles, now, func(a, b Trouble) bool { return a.Name == b.Name && a.Why.Error() == b.Why.Error() })
	f.troubles = now
	f.mu.Unlock()
	if !same {
		f.changed()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lookUp asks all there is to ask about a name.
func (f *Finder) lookUp(ctx context.Context, n *lookup) lookedUp {
	ctx, cancel := context.WithTimeout(ctx, lookupDeadline)
	defer cancel()
	q := &inquiry{ctx: ctx, ask: f.ask}
	r := lookedUp{of: n, found: q.sightings(n.Followed, f.port)}
	r.again, r.err = q.again, q.failed()
	return r
}

// take notes what came of a look-up, and when the next is due.
func (f *Finder) take(r lookedUp) {
	n, now := r.of, time.Now()
	n.busy, n.found = false, r.found
	switch {
	case r.err != nil && n.failing == nil:
		f.log.Warn("a name of clusters cannot be looked up, will try again", "name", n.Name.String(), "err", r.err)
	case r.err == nil && n.failing != nil:
		f.log.Info("a name of clusters can be looked up again", "name", n.Name.String())
	}
	n.failing = r.err
	if n.outdone {
		n.outdone = false
		n.due = later(now.Add(settle), n.began.Add(againLeast))
		return
	}
	// Past the end of the answers, or a resolver on the way would give the rest of their time once more.
	spread := min(max(r.again.Sub(now)/20, time.Second), maxSpread)
	n.due = r.again.Add(time.Second/2 + rand.N(spread))
}

// union joins what all names say of the same cluster.
func union(names map[Followed]*lookup) map[identity.ID]discovery.Sighting {
	out := map[identity.ID]discovery.Sighting{}
	for _, n := range names {
		for _, s := range n.found {
			have, ok := out[s.ID]
			if !ok {
				s.Addresses = slices.Clone(s.Addresses)
				out[s.ID] = s
				continue
			}
			for _, a := range s.Addresses {
				if !slices.Contains(have.Addresses, a) {
					have.Addresses = append(have.Addresses, a)
				}
			}
			if s.Seen.After(have.Seen) {
				have.Seen = s.Seen
			}
			if have.Name == "" || s.Name != "" && s.Name < have.Name { // whatever the order
				have.Name = s.Name
			}
			out[s.ID] = have
		}
	}
	for id, s := range out {
		s.Addresses = bounded(s.Addresses)
		out[id] = s
	}
	return out
}

// changes brings told up to now and gives the events that say so.
func changes(told, now map[identity.ID]discovery.Sighting) (events []discovery.Event) {
	for id, old := range told {
		if _, ok := now[id]; !ok {
			events = append(events, discovery.Event{Sighting: old, Gone: true})
			delete(told, id)
		}
	}
	for id, s := range now {
		if old, ok := told[id]; !ok || discovery.WorthTelling(old, s) {
			events = append(events, discovery.Event{Sighting: s})
			told[id] = s
		}
	}
	return events
}
