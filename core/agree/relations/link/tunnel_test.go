package link

import (
	"testing"
	"time"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/gateway"
)

// tunnels is a gateway of which only the tunnels are asked for.
type tunnels struct {
	Gateway
	stats map[string]gateway.Stats
}

func (g tunnels) Stats(id string) (gateway.Stats, bool) { s, ok := g.stats[id]; return s, ok }

func TestWhenATunnelIsDown(t *testing.T) {
	now := time.Now()
	linked := &v1alpha1.NetworkStatus{}
	here := func(ago time.Duration) presence.Presence {
		return presence.Presence{State: presence.Reachable, Since: now.Add(-ago)}
	}
	up := gateway.Stats{Up: true, LastHandshake: now}
	silent := gateway.Stats{LastHandshake: now.Add(-time.Minute), Heard: now.Add(-48 * time.Second)}
	for what, c := range map[string]struct {
		network *v1alpha1.NetworkStatus
		there   presence.Presence
		stats   map[string]gateway.Stats
		why     string
		known   bool
		again   time.Duration
	}{
		"up":                         {linked, here(time.Hour), map[string]gateway.Stats{"bob": up}, "", true, 0},
		"silent":                     {linked, here(time.Hour), map[string]gateway.Stats{"bob": silent}, "tunnel: no answer for 48 s", true, 0},
		"never up":                   {linked, here(time.Hour), map[string]gateway.Stats{"bob": {}}, "tunnel: no handshake since kithd started", true, 0},
		"coming up":                  {linked, here(5 * time.Second), map[string]gateway.Stats{"bob": {}}, "", false, 10 * time.Second},
		"back a moment ago":          {linked, here(time.Second), map[string]gateway.Stats{"bob": silent}, "", false, 14 * time.Second},
		"the peer cannot be reached": {linked, presence.Presence{}, map[string]gateway.Stats{"bob": silent}, "", false, 0},
		"no link was agreed on":      {nil, here(time.Hour), map[string]gateway.Stats{"bob": silent}, "", false, 0},
		"the gateway does not know":  {linked, here(time.Hour), nil, "", false, 0},
	} {
		l := &Linker{cfg: Config{Gateway: tunnels{stats: c.stats}}}
		peer := &v1alpha1.Peer{Spec: v1alpha1.PeerSpec{ID: "bob"}, Status: v1alpha1.PeerStatus{Network: c.network}}
		if why, known, again := l.Tunnel(peer, c.there, now); why != c.why || known != c.known || again != c.again {
			t.Errorf("%s: %q, known %v, again %s", what, why, known, again)
		}
	}
}
