package carry

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/net/gateway"
	"kith.dev/core/trust/identity"
)

// tunnels is a gateway of one peer.
type tunnels struct {
	mu     sync.Mutex
	id     identity.ID
	stats  gateway.Stats
	asked  []time.Time // when a connection was asked for
	looked int         // how often whom to ask was looked for
}

func (g *tunnels) StatsAll() map[string]gateway.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return map[string]gateway.Stats{g.id.String(): g.stats}
}
func (g *tunnels) Stats(id string) (gateway.Stats, bool) { s, ok := g.StatsAll()[id]; return s, ok }
func (g *tunnels) Carry(context.Context, string, net.Conn, gateway.Carriage) error {
	return nil
}
func (g *tunnels) Handle(string, func(http.ResponseWriter, *http.Request, peering.Caller)) {}

// Client is asked for when a connection is about to be made; there is none.
func (g *tunnels) Client(identity.ID) (*peering.Client, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, time.Now())
	return nil, false
}

func (g *tunnels) Contact(identity.ID) (peering.Contact, bool) {
	return peering.Contact{Presence: presence.Presence{State: presence.Reachable}}, true
}
func (g *tunnels) Snapshot() []peering.Contact {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looked++
	return nil
}
func (g *tunnels) Changed() <-chan struct{} { return nil }

func TestPacketsAreCarriedWhenATunnelStaysDown(t *testing.T) {
	lesser, greater := identity.ID{1}, identity.ID{2}
	for name, c := range map[string]struct {
		me    identity.ID
		stats gateway.Stats
		first time.Duration // until a connection is made; 0: never
	}{
		"down":                       {lesser, gateway.Stats{}, patience},
		"down, the other one begins": {greater, gateway.Stats{}, patienceOther},
		"up":                         {lesser, gateway.Stats{Up: true}, 0},
		"carried":                    {lesser, gateway.Stats{Carrier: true}, 0},
		"no device":                  {lesser, gateway.Stats{Off: "tunnels need Linux"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &tunnels{id: lesser, stats: c.stats}
				if c.me == lesser {
					g.id = greater
				}
				carrier := New(Config{Me: c.me, Gateway: g, Contacts: g, Server: g, Log: slog.New(slog.DiscardHandler)})
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { carrier.Run(ctx) })
				began := time.Now()
				time.Sleep(time.Hour)
				g.mu.Lock()
				asked := g.asked
				g.mu.Unlock()
				switch {
				case c.first == 0 && len(asked) > 0:
					t.Errorf("a connection is made after %s", asked[0].Sub(began))
				case c.first > 0 && (len(asked) == 0 || asked[0].Sub(began) != c.first):
					t.Errorf("connections are made at %v, want the first after %s", asked, c.first)
				case len(asked) > 25:
					t.Errorf("%d connections are tried in an hour", len(asked))
				}
				g.mu.Lock()
				g.stats.Up = true
				g.mu.Unlock()
				carrier.Look()
				synctest.Wait()
				if len(carrier.waits) > 0 {
					t.Error("it waits although the tunnel is up")
				}
				stop()
				running.Wait()
			})
		})
	}
}

// TestOneCallerCostsOthersLittle: however often it has connections made.
func TestOneCallerCostsOthersLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &tunnels{id: identity.ID{2}}
		c := New(Config{Me: identity.ID{1}, Gateway: g, Contacts: g, Server: g, Log: slog.New(slog.DiscardHandler)})
		took := 0
		for range 60 {
			if c.mayTake(identity.ID{2}, time.Now()) {
				took++
			}
			c.whereSeen(t.Context())
			time.Sleep(time.Second)
		}
		if took != 20 || g.looked != 20 { // nobody saw it, so it is asked again at once
			t.Errorf("%d connections in a minute, others are asked %d times", took, g.looked)
		}
		if !c.mayTake(identity.ID{3}, time.Now()) {
			t.Error("another one may not")
		}
	})
}
