package overlay

import (
	"net/netip"
	"reflect"
	"testing"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

var three = World{Gateway: "a", Nodes: []Node{
	{"c", addr("192.0.2.13"), prefix("10.42.2.0/24")}, {"a", addr("192.0.2.11"), prefix("10.42.0.0/24")}, {"b", addr("192.0.2.12"), prefix("10.42.1.0/24")},
}, Peers: []netip.Prefix{prefix("198.18.9.0/24"), prefix("10.64.0.0/16"), prefix("10.64.0.0/16"), prefix("10.42.7.0/24"), {}}}

func cfg(self string) Config {
	return Config{Self: self, Pods: prefix("10.42.0.0/16"), Port: 6451, ID: 6450, Tunnel: "kith0"}
}

func TestWhatANodeLeadsWhere(t *testing.T) {
	peers := []netip.Prefix{prefix("10.64.0.0/16"), prefix("198.18.9.0/24")} // none of the cluster's own
	all := []netip.Addr{addr("192.0.2.11"), addr("192.0.2.12"), addr("192.0.2.13")}
	for self, want := range map[string]Plan{
		"a": {Address: all[0], Own: addr("10.42.0.0"), Ends: all[1:], Nodes: all, Peers: peers,
			ToPods: []Route{{prefix("10.42.1.0/24"), all[1]}, {prefix("10.42.2.0/24"), all[2]}}},
		"b": {Address: all[1], Own: addr("10.42.1.0"), Ends: all[:1], Gateway: all[0], ToPeers: peers, Nodes: all, Peers: peers},
	} {
		if got, ok := PlanOf(cfg(self), three); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", self, got, want)
		}
	}
}

func TestWithoutAGatewayWhatIsThereStays(t *testing.T) {
	for what, w := range map[string]World{
		"nobody works": {Nodes: three.Nodes}, "one that is gone works": {Gateway: "z", Nodes: three.Nodes}, "this node is not known": {Gateway: "a", Nodes: three.Nodes[:2]},
	} {
		if p, ok := PlanOf(cfg("b"), w); ok {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

func TestNodesWithoutARangeOfTheirOwn(t *testing.T) {
	w := three
	w.Nodes = []Node{{"a", addr("192.0.2.11"), netip.Prefix{}}, {"b", addr("192.0.2.12"), prefix("172.20.0.0/24")}, {"six", addr("fd00::1"), netip.Prefix{}}}
	if p, ok := PlanOf(cfg("a"), w); !ok || p.Own.IsValid() || p.ToPods != nil || len(p.Ends) != 1 { // the plugin's way is taken
		t.Errorf("%v %+v", ok, p)
	}
	if p, ok := PlanOf(cfg("b"), w); !ok || p.Own.IsValid() || len(p.ToPeers) != 2 {
		t.Errorf("%v %+v", ok, p)
	}
}
