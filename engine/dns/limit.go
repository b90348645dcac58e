package dns

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
	"golang.org/x/time/rate"
)

// What a guest may ask: an application looks up some names when it starts and some now and then. What is more is a flood, or
// data that leaves in questions; either way it goes to the laptop's own servers, and on the owner's account.
//
// Names of services stay here and are answered from memory. Clients that open a connection for each request ask for them all the time,
// eight times for a name of four dots (three search domains, A and AAAA), so of these a guest has many more; all guests together
// have as many as take a third of a core.
const (
	questionsPerSecond  = 50
	questionsAtOnce     = 200
	questionsUnderWay   = 32
	servicesPerSecond   = 1000
	servicesAtOnce      = 2000
	servicesOfAllGuests = 4000
	guestsRemembered    = 1024 // of all guests
	guestForgotten      = time.Minute
	guestBelieved       = time.Second // to be one: the mistake that is left is to take the laptop itself for one, that long
)

// limits bounds the questions of each guest. Those beyond get REFUSED at once, so that a resolver does not ask again as it does
// when nothing comes.
type limits struct {
	now func() time.Time
	log *slog.Logger

	services *rate.Limiter // of all guests

	mu     sync.Mutex
	guests map[netip.Addr]*asking
	told   rate.Sometimes
}

type asking struct {
	tokens   *rate.Limiter
	services *rate.Limiter
	underWay atomic.Int32
	last     time.Time
	seen     time.Time // to be a guest
	refused  int
}

func newLimits(log *slog.Logger) *limits {
	return &limits{
		now: time.Now, log: log, guests: map[netip.Addr]*asking{}, told: rate.Sometimes{First: 1, Interval: time.Minute},
		services: rate.NewLimiter(servicesOfAllGuests, servicesOfAllGuests),
	}
}

// fromMemory reports whether the name's answer, yes or no, is in the memory of the kubernetes plugin. Names of pods are looked up.
func fromMemory(name string) bool {
	return dns.IsSubDomain(clusterDomain, name) && !dns.IsSubDomain("pod."+clusterDomain, name)
}

// believes reports whether who asks was seen to be a guest just now: the kernel is not asked about each question.
func (l *limits) believes(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.guests[from]
	return a != nil && l.now().Sub(a.seen) < guestBelieved
}

// enter says whether the guest may ask for the name now; it calls done when it is answered.
func (l *limits) enter(guest netip.Addr, name string) (done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	a := l.guests[guest]
	if a == nil {
		if len(l.guests) >= guestsRemembered && !l.forget(now) {
			return nil, false
		}
		a = &asking{tokens: rate.NewLimiter(questionsPerSecond, questionsAtOnce), services: rate.NewLimiter(servicesPerSecond, servicesAtOnce)}
		l.guests[guest] = a
	}
	if a.last = now; now.Sub(a.seen) >= guestBelieved { // else it would be believed for as long as it asks
		a.seen = now
	}
	allowed := a.underWay.Load() < questionsUnderWay
	if allowed && fromMemory(name) {
		allowed = a.services.AllowN(now, 1) && l.services.AllowN(now, 1)
	} else if allowed {
		allowed = a.tokens.AllowN(now, 1)
	}
	if !allowed {
		a.refused++
		l.told.Do(func() {
			l.log.Warn("a guest asks too many names; some questions are refused", "address", guest, "refused", a.refused, "underWay", a.underWay.Load(),
				"perSecond", questionsPerSecond, "servicesPerSecond", servicesPerSecond)
		})
		return nil, false
	}
	a.underWay.Add(1)
	return func() { a.underWay.Add(-1) }, true
}

// forget makes room: of a guest that was silent for a minute, whose tokens are all there again, nothing has to be known.
func (l *limits) forget(now time.Time) (some bool) {
	for guest, a := range l.guests {
		if now.Sub(a.last) > guestForgotten && a.underWay.Load() == 0 {
			delete(l.guests, guest)
			some = true
		}
	}
	return some
}

// limited is the plugin in front of all others. It finds out whether a guest asks.
type limited struct {
	next    plugin.Handler
	isGuest func(netip.Addr) bool
	limits  *limits
}

// Name implements plugin.Handler.
func (limited) Name() string { return "limits" }

// ServeDNS implements plugin.Handler.
func (l limited) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	from := sender(w)
	if !l.limits.believes(from) && !l.isGuest(from) {
		return l.next.ServeDNS(ctx, w, r)
	}
	name := ""
	if len(r.Question) > 0 {
		name = r.Question[0].Name
	}
	done, ok := l.limits.enter(from, name)
	if !ok {
		return dns.RcodeSuccess, w.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeRefused)) // "success": it was answered
	}
	defer done()
	return l.next.ServeDNS(asks(ctx, from), w, r)
}
