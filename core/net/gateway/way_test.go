package gateway

import (
	"net/netip"
	"testing"
	"time"
)

func TestWhyPacketsAreCarried(t *testing.T) {
	list := func(texts ...string) (list []netip.AddrPort) {
		for _, text := range texts {
			list = append(list, netip.MustParseAddrPort(text))
		}
		return list
	}
	began := time.Now()
	for name, c := range map[string]struct {
		meeting
		known netip.AddrPort
		after time.Duration
		want  Reason
	}{
		"since a moment ago":     {meeting{told: list("203.0.113.7:6450")}, netip.AddrPort{}, time.Second, ReasonTrying},
		"nobody sees the peer":   {meeting{seen: list("198.51.100.1:6450")}, netip.AddrPort{}, time.Minute, ReasonNotSeen},
		"of another network":     {meeting{others: true}, netip.AddrPort{}, time.Minute, ReasonOtherNetwork},
		"one address for both":   {meeting{seen: list("203.0.113.7:1"), told: list("203.0.113.7:2")}, netip.AddrPort{}, time.Minute, ReasonSameRouter},
		"this router's ports":    {meeting{seen: list("198.51.100.1:1", "198.51.100.1:2"), told: list("203.0.113.7:2")}, netip.AddrPort{}, time.Minute, ReasonNewPorts},
		"the other one's ports":  {meeting{seen: list("198.51.100.1:1"), told: list("203.0.113.7:2", "203.0.113.7:3")}, netip.AddrPort{}, time.Minute, ReasonNewPorts},
		"one of each family":     {meeting{told: list("203.0.113.7:2", "[2001:db8::7]:3")}, netip.AddrPort{}, time.Minute, ReasonNoAnswer},
		"it is said where it is": {meeting{}, netip.MustParseAddrPort("203.0.113.7:6450"), time.Minute, ReasonNoAnswer},
		"it went by UDP before":  {meeting{told: list("203.0.113.7:2"), stopped: true}, netip.AddrPort{}, time.Second, ReasonStopped},
	} {
		c.began = began
		if got := c.reason(began.Add(c.after), c.known); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
