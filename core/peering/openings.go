package peering

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"kith.dev/core/identity"
)

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
