package cli

import (
	"testing"

	"kith.dev/core/api"
)

func TestByWhichWayAPeerIsReached(t *testing.T) {
	for name, c := range map[string]struct {
		peer      api.Peer
		way, note string
	}{
		"not at all":    {api.Peer{Name: "bob", Tunnel: api.Tunnel{Way: api.TunnelDirect}}, "", ""},
		"no tunnel":     {api.Peer{Name: "bob", Reachable: true}, "direct", ""},
		"dialled":       {api.Peer{Name: "bob", Reachable: true, Tunnel: api.Tunnel{Way: api.TunnelDirect}}, "direct", ""},
		"it calls back": {api.Peer{Name: "bob", By: "bob", Reachable: true, Tunnel: api.Tunnel{Way: api.TunnelDirect}}, "it called back, tunnel direct", ""},
		"punched":       {api.Peer{Name: "bob", By: "carol", Reachable: true, Tunnel: api.Tunnel{Way: api.TunnelPunched}}, "by carol, tunnel punched", ""},
		"mapped":        {api.Peer{Name: "bob", By: "carol", Reachable: true, Tunnel: api.Tunnel{Way: api.TunnelMapped}}, "by carol, tunnel direct by a mapped port", ""},
		"relayed": {api.Peer{Name: "bob", By: "carol", Reachable: true, Tunnel: api.Tunnel{Way: api.TunnelCarried, By: "carol", Reason: api.TunnelSameRouter}},
			"by carol, tunnel relayed by carol", "the tunnel is relayed by carol: both are behind one router, which does not lead back in"},
		"UDP is shut": {api.Peer{Name: "bob", Reachable: true, Tunnel: api.Tunnel{Way: api.TunnelCarried, Reason: api.TunnelStopped}},
			"direct, tunnel over TCP", "the tunnel is over TCP: packets went by UDP before, and do not come through any more"},
	} {
		if got := way(c.peer); got != c.way {
			t.Errorf("%s: %q, want %q", name, got, c.way)
		}
		if got := relayed(c.peer); got != c.note {
			t.Errorf("%s: %q, want %q", name, got, c.note)
		}
	}
}
