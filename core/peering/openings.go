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

// openings are the questions between their commitment and their reveal: one per caller, the oldest gives way.
type openings struct {
	mu  sync.Mutex
	all map[identity.ID]opening
}

type opening struct {
	id         string
	commitment [32]byte
	nonce      identity.Nonce // ours
	question   Question
	made       time.Time
}

func (o *openings) add(caller identity.ID, msg *Opening) opening {
	var id [16]byte
	rand.Read(id[:]) // never fails, crypto/rand ends the program instead
	fresh := opening{
		id:         hex.EncodeToString(id[:]),
		commitment: [32]byte(msg.Commitment),
		nonce:      identity.NewNonce(),
		question:   msg.Question,
		made:       time.Now(),
	}
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

// take gives the caller's opening once: whatever the reveal turns out to be, it cannot be tried again.
func (o *openings) take(caller identity.ID, id string) (opening, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	one, ok := o.all[caller]
	if !ok || one.id != id {
		return opening{}, &Problem{Code: CodeNotFound, Message: "no question of yours waits for this reveal", Do: "ask again"}
	}
	delete(o.all, caller)
	if time.Since(one.made) > openingLife {
		return opening{}, &Problem{Code: CodeExpired, Message: "the reveal came too late", Do: "ask again"}
	}
	return one, nil
}
