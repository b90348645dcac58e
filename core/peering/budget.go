package peering

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"kith.dev/core/wire"
)

// Budget is how often something may happen within a time: All counts everybody together, Each one address (of IPv6 its /64).
type Budget struct {
	All, Each int
	Within    time.Duration
}

// budget is a Budget in use. It counts exactly, over the time that ends now, since what it bounds is how often somebody may
// try his luck at a pairing code: a rate with bursts would allow twice as many.
type budget struct {
	Budget
	now func() time.Time

	mu   sync.Mutex
	used []*spent // oldest first, at most All
	told time.Time
}

type spent struct {
	at   time.Time
	addr netip.Prefix
}

func newBudget(b Budget) *budget { return &budget{Budget: b, now: time.Now} }

// take spends one for addr; nil when there is none left. first is true once within the time, when all is spent.
func (b *budget) take(addr netip.Addr) (cost *spent, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.used = slices.DeleteFunc(b.used, func(s *spent) bool { return now.Sub(s.at) >= b.Within })
	if len(b.used) >= b.All {
		first = b.told.IsZero() || now.Sub(b.told) >= b.Within
		if first {
			b.told = now
		}
		return nil, first
	}
	cost = &spent{now, wire.Neighbourhood(addr)}
	mine := 0
	for _, s := range b.used {
		if s.addr == cost.addr {
			mine++
		}
	}
	if mine >= b.Each {
		return nil, false
	}
	b.used = append(b.used, cost)
	return cost, false
}

// giveBack undoes a take.
func (b *budget) giveBack(cost *spent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = slices.DeleteFunc(b.used, func(s *spent) bool { return s == cost })
}
