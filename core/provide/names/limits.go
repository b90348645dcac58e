package names

import (
	"net/netip"
	"strings"
	"sync"

	"golang.org/x/time/rate"
)

// What a guest may ask: as of the built-in engine's DNS.
const (
	mostAsked = 4096 // bytes of a question

	questionsPerSecond = 50
	questionsAtOnce    = 200
	servicesPerSecond  = 1000 // names of the cluster
	servicesAtOnce     = 2000
	underWay           = 16 // of one guest, connections by TCP among them
	longUnderWay       = 64 // of all: answers by TCP, each of which may be long
)

// asking is what a guest asks now, and may.
type asking struct {
	questions, services *rate.Limiter
	underWay            int
}

// limits bounds the questions of guests. Its guests are those that the server was told of.
type limits struct {
	mu     sync.Mutex
	guests map[netip.Addr]*asking
}

// keep forgets who is no guest any more.
func (l *limits) keep(is func(netip.Addr) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for guest, a := range l.guests {
		if !is(guest) && a.underWay == 0 {
			delete(l.guests, guest)
		}
	}
}

// enter says whether a guest may ask now, and leave ends what it began.
func (l *limits) enter(guest netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.guests[guest]
	if a == nil {
		a = &asking{questions: rate.NewLimiter(questionsPerSecond, questionsAtOnce), services: rate.NewLimiter(servicesPerSecond, servicesAtOnce)}
		if l.guests == nil {
			l.guests = map[netip.Addr]*asking{}
		}
		l.guests[guest] = a
	}
	if a.underWay >= underWay {
		return false
	}
	a.underWay++
	return true
}

func (l *limits) leave(guest netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests[guest].underWay--
}

// allows says whether a guest that entered may ask for a name.
func (l *limits) allows(guest netip.Addr, name string) bool {
	l.mu.Lock()
	a := l.guests[guest]
	l.mu.Unlock()
	if strings.HasSuffix(strings.ToLower(name), "."+domain) {
		return a.services.Allow()
	}
	return a.questions.Allow()
}
