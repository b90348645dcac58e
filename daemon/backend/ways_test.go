package backend

import (
	"testing"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/find/directory"
	"kith.dev/core/net/gateway"
)

func TestTheWayOfATunnelByWhoCanBeDialled(t *testing.T) {
	for _, c := range []struct {
		by    string // by whom the contact is
		stats gateway.Stats
		way   api.TunnelWay
		carol string // who passes packets on
	}{
		{"", gateway.Stats{Way: gateway.WayDirect}, api.TunnelDirect, ""},
		{"", gateway.Stats{Way: gateway.WayPunched}, api.TunnelDirect, ""},
		{"", gateway.Stats{Way: gateway.WayCarried}, api.TunnelCarried, ""},
		{"bob", gateway.Stats{Way: gateway.WayDirect}, api.TunnelDirect, ""},
		{"bob", gateway.Stats{Way: gateway.WayPunched}, api.TunnelPunched, ""},
		{"bob", gateway.Stats{Way: gateway.WayCarried, By: "bob"}, api.TunnelCarried, ""},
		{"carol", gateway.Stats{Way: gateway.WayDirect}, api.TunnelPunched, ""},
		{"carol", gateway.Stats{Way: gateway.WayMapped}, api.TunnelMapped, ""},
		{"carol", gateway.Stats{Way: gateway.WayCarried, By: "carol"}, api.TunnelCarried, "carol"},
		{"carol", gateway.Stats{}, "", ""},
	} {
		k := directory.Known{Name: "bob", Contact: peering.Contact{By: c.by, Presence: presence.Presence{State: presence.Reachable}}}
		if way, by, _ := wayOf(k, c.stats); way != c.way || by != c.carol {
			t.Errorf("by %q, %+v: %q by %q", c.by, c.stats, way, by)
		}
	}
}
