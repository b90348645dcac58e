package backend

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/find/directory"
)

const (
	givesTime = time.Second      // for all peers together: whoever looks at the list waits for it
	givesAge  = 10 * time.Second // what was said so long ago is asked for again, when somebody looks
	givesAll  = 16               // are asked at a time
)

// giving remembers what peers said that they would give.
type giving struct {
	mu  sync.Mutex
	all map[string]said // by ID
}

type said struct {
	at    time.Time
	gives *api.Gives // nil: it did not say
}

// gives is what each of the peers without a contract would give, by ID. They are asked when somebody looks, and no more often than that.
func (b *Backend) gives(ctx context.Context, peers []directory.Known) map[string]*api.Gives {
	ctx, cancel := context.WithTimeout(ctx, givesTime)
	defer cancel()
	var due []directory.Known
	b.giving.mu.Lock()
	now := map[string]said{} // of the peers that are there: others are forgotten
	for _, k := range peers {
		id := k.ID.String()
		if !k.Contact.Reachable() || consumes(k) {
			continue
		}
		if known, ok := b.giving.all[id]; ok && time.Since(known.at) < givesAge {
			now[id] = known
			continue
		}
		now[id] = said{} // until it answers
		due = append(due, k)
	}
	b.giving.all = now
	b.giving.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(givesAll)
	for _, k := range due {
		group.Go(func() error {
			gives := b.wouldGive(ctx, k)
			b.giving.mu.Lock()
			defer b.giving.mu.Unlock()
			if gives == nil && ctx.Err() != nil {
				return nil // whoever looked went away: the next one asks
			}
			b.giving.all[k.ID.String()] = said{time.Now(), gives}
			return nil
		})
	}
	_ = group.Wait() // nothing fails
	b.giving.mu.Lock()
	defer b.giving.mu.Unlock()
	list := map[string]*api.Gives{}
	for id, known := range b.giving.all {
		list[id] = known.gives
	}
	return list
}

// consumes reports whether there is a contract by which this cluster has something of the peer's.
func consumes(k directory.Known) bool {
	return k.Peer != nil && k.Peer.Status.Outgoing.Contract != ""
}

// wouldGive asks one peer; nil where it does not say.
func (b *Backend) wouldGive(ctx context.Context, k directory.Known) *api.Gives {
	peer := k.Peer
	if peer == nil {
		peer = &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: k.ID.String(), Endpoints: k.Addresses}}
	}
	to, err := b.Directory.Client(peer)
	if err != nil {
		return nil
	}
	supply, err := to.WouldGive(ctx)
	if err != nil { // an older Kith, or one that starts
		return nil
	}
	amounts, err := record.Quantities(supply.Resources)
	if err != nil {
		return nil
	}
	return &api.Gives{State: giveStates[supply.State], Resources: sharing.Words(amounts), Why: supply.Why}
}

var giveStates = map[peering.SupplyState]api.GivesState{
	peering.SupplySome: api.GivesSome, peering.SupplyPaused: api.GivesPaused, peering.SupplyNothing: api.GivesNothing,
}

// less says what a peer would give of amounts of which it does not give all: "cpu 1 (asked 1000), memory 1Gi"; "" where that is not known.
func less(asked corev1.ResourceList, gives *api.Gives) string {
	if gives == nil || gives.State != api.GivesSome {
		return ""
	}
	has, err := parse("gives", gives.Resources)
	if err != nil || sharing.Less(asked, has) == "" {
		return ""
	}
	given := corev1.ResourceList{}
	for name, amount := range asked {
		if given[name] = amount; amount.Cmp(has[name]) > 0 {
			given[name] = has[name]
		}
	}
	return api.Change(nil, sharing.Words(given), sharing.Words(asked))
}
