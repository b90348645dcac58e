package peering

import (
	"crypto/rand"
	"encoding/hex"
	"net/netip"
	"slices"
	"sync"
	"time"

	"kith.dev/core/identity"
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

const (
	maxOpenings = 256
	openingLife = 30 * time.Second
)

// openings are the questions between the responder's commitment and the asker's nonce: one per caller, the oldest gives way.
// Strangers and those whose key is known have stores of their own.
type openings struct {
	mu  sync.Mutex
	all map[identity.ID]opening
}

type opening struct {
	id    string
	nonce identity.Nonce // ours
	made  time.Time
	cost  *spent // of the strangers' budget, given back when the question follows; nil for those known
}

func (o *openings) add(caller identity.ID, cost *spent) opening {
	var id [16]byte
	rand.Read(id[:]) // never fails, crypto/rand ends the program instead
	fresh := opening{id: hex.EncodeToString(id[:]), nonce: identity.NewNonce(), made: time.Now(), cost: cost}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, caller)
	if len(o.all) >= maxOpenings {
		var oldest identity.ID
		for id, one := range o.all {
			if oldest.IsZero() || one.made.Before(o.all[oldest].made) {
				oldest = id
			}
		}
		delete(o.all, oldest)
	}
	o.all[caller] = fresh
	return fresh
}

// take gives the caller's opening once: whatever the question turns out to be, its nonce is used up.
func (o *openings) take(caller identity.ID, id string) (opening, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, ok := o.all[caller]
	if !ok || one.id != id {
		return opening{}, &Problem{Code: CodeNotFound, Message: "no opening of yours waits for this question", Do: "ask again"}
	}
	delete(o.all, caller)
	if time.Since(one.made) > openingLife {
		return opening{}, &Problem{Code: CodeExpired, Message: "the question came too late", Do: "ask again"}
	}
	return one, nil
}
