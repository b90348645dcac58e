package api

import "testing"

func TestTheWayOfATunnelInWords(t *testing.T) {
	for want, tunnel := range map[string]Tunnel{
		"":                        {},
		"direct":                  {Way: TunnelDirect},
		"direct by a mapped port": {Way: TunnelMapped},
		"punched":                 {Way: TunnelPunched},
		"relayed by carol":        {Way: TunnelCarried, By: "carol"},
		"over TCP":                {Way: TunnelCarried},
	} {
		if got := tunnel.Says(); got != want {
			t.Errorf("%+v: %q, want %q", tunnel, got, want)
		}
	}
	for _, r := range []TunnelReason{TunnelTrying, TunnelNotSeen, TunnelOtherNetwork, TunnelSameRouter, TunnelNewPorts, TunnelNoAnswer, TunnelStopped} {
		if said := r.String(); said == string(r) || said == "" {
			t.Errorf("nothing is said of %s", r)
		}
	}
}
