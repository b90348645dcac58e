package gateway

import (
	"net/netip"
	"testing"
	"time"
)

// TestAWayThatWasFoundStays as long as packets take it, also when the carrier that led to it has ended.
func TestAWayThatWasFoundStays(t *testing.T) {
	found, elsewhere := netip.MustParseAddrPort("203.0.113.7:40000"), netip.MustParseAddrPort("203.0.113.7:40001")
	for name, c := range map[string]struct {
		mapped []netip.AddrPort
		own    netip.AddrPort
		want   Way
	}{
		"punched":           {want: WayPunched},
		"the peer's router": {mapped: []netip.AddrPort{found}, want: WayMapped},
		"this router":       {own: elsewhere, want: WayMapped},
	} {
		t.Run(name, func(t *testing.T) {
			r := &route{carrier: carrierOf(c.mapped, c.own)}
			s := Stats{Endpoint: found}
			if r.fillWay(&s, time.Now()); s.Way != c.want || s.Carried || !s.Carrier {
				t.Errorf("it is %+v", s)
			}
			r.carrier = nil
			if s = (Stats{Endpoint: found}); true {
				r.fillWay(&s, time.Now())
			}
			if s.Way != c.want {
				t.Errorf("without the carrier it is %q", s.Way)
			}
			s = Stats{Endpoint: elsewhere}
			if r.fillWay(&s, time.Now()); s.Way != WayDirect {
				t.Errorf("from elsewhere it is %q", s.Way)
			}
		})
	}
	r := &route{carrier: carrierOf(nil, netip.AddrPort{}), Peer: Peer{Endpoint: found}}
	s := Stats{Endpoint: found}
	if r.fillWay(&s, time.Now()); s.Way != WayDirect {
		t.Errorf("where it is said to be it is %q", s.Way)
	}
}

func carrierOf(mapped []netip.AddrPort, own netip.AddrPort) *carrier {
	return &carrier{Carriage: Carriage{Mapped: func() netip.AddrPort { return own }}, meet: meeting{mapped: mapped}, at: netip.MustParseAddrPort("127.1.1.1:9")}
}
