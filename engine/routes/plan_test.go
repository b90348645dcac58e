package routes

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

var cluster = netip.MustParsePrefix("10.42.0.0/16")

func node(name, pods, ip, lan string) Node {
	n := Node{Name: name, IP: netip.MustParseAddr(ip), LAN: netip.MustParseAddr(lan)}
	if pods != "" {
		n.Pods = netip.MustParsePrefix(pods)
	}
	return n
}

func ways(s ...string) (list []Way) {
	for _, w := range s {
		to, via, _ := strings.Cut(w, " ")
		list = append(list, Way{netip.MustParsePrefix(to), netip.MustParseAddr(via)})
	}
	return list
}

func TestEachNodeHasAWayToThePodsOfTheOthers(t *testing.T) {
	one, two := node("corp-1", "10.42.0.0/24", "192.0.2.2", "192.0.2.2"), node("corp-2", "10.42.1.0/24", "192.0.2.3", "192.0.2.3")
	laptop := node("alice", "10.42.0.0/24", "10.42.255.1", "192.0.2.11")
	for name, c := range map[string]struct {
		own   string
		nodes []Node
		want  []Way
		odd   string
	}{
		"alone":                       {"corp-1", []Node{one}, nil, ""},
		"two":                         {"corp-1", []Node{one, two}, ways("10.42.1.0/24 192.0.2.3"), ""},
		"and back":                    {"corp-2", []Node{one, two}, ways("10.42.0.0/24 192.0.2.2"), ""},
		"a server on its own device":  {"corp-2", []Node{laptop, two}, ways("10.42.0.0/24 192.0.2.11", "10.42.255.1/32 192.0.2.11"), ""},
		"no range yet":                {"corp-1", []Node{one, node("corp-2", "", "192.0.2.3", "192.0.2.3")}, nil, ""},
		"the range of this node":      {"corp-1", []Node{one, node("x", "10.42.0.0/24", "192.0.2.9", "192.0.2.9")}, nil, "node x"},
		"the range of an older node":  {"corp-1", []Node{one, two, node("x", "10.42.1.0/24", "192.0.2.9", "192.0.2.9")}, ways("10.42.1.0/24 192.0.2.3"), "node x"},
		"everything":                  {"corp-1", []Node{one, node("x", "0.0.0.0/0", "192.0.2.9", "192.0.2.9")}, nil, "node x"},
		"the whole cluster":           {"corp-2", []Node{node("x", "10.42.0.0/16", "192.0.2.9", "192.0.2.9"), two}, nil, "node x"},
		"outside":                     {"corp-1", []Node{one, node("x", "198.51.100.0/24", "192.0.2.9", "192.0.2.9")}, nil, "node x"},
		"an address outside, as its":  {"corp-1", []Node{one, node("x", "10.42.7.0/24", "198.51.100.1", "192.0.2.9")}, nil, "node x"},
		"the address of this node":    {"alice", []Node{laptop, node("x", "10.42.7.0/24", "10.42.255.1", "192.0.2.9")}, nil, "node x"},
		"over a pod":                  {"corp-1", []Node{one, node("x", "10.42.7.0/24", "10.42.0.9", "10.42.0.9")}, nil, "node x"},
		"this node has no range yet":  {"corp-2", []Node{one, node("corp-2", "", "192.0.2.3", "192.0.2.3")}, ways("10.42.0.0/24 192.0.2.2"), ""},
		"a peer's, which is no range": {"corp-1", []Node{one, {Name: "kith-bob", IP: netip.MustParseAddr("192.0.2.2")}}, nil, ""},
	} {
		got, others, odd := Plan(c.own, cluster, c.nodes)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if text := strings.Join(odd, "\n"); (c.odd == "") != (text == "") || !strings.Contains(text, c.odd) {
			t.Errorf("%s: says %q, want %q", name, text, c.odd)
		}
		for _, w := range got {
			if !contains(others, w.To) || !contains(others, host(w.Via)) {
				t.Errorf("%s: speaks from %v, not %v", name, others, w)
			}
		}
	}
}

func contains(list []netip.Prefix, p netip.Prefix) bool {
	for _, q := range list {
		if p == q {
			return true
		}
	}
	return false
}

func TestOnlyWhatDiffersIsChanged(t *testing.T) {
	have := ways("10.42.1.0/24 192.0.2.3", "10.42.2.0/24 192.0.2.4", "10.42.3.0/24 192.0.2.5")
	want := ways("10.42.1.0/24 192.0.2.3", "10.42.2.0/24 192.0.2.14", "10.42.4.0/24 192.0.2.6")
	put, drop := Changes(have, want)
	if !reflect.DeepEqual(put, ways("10.42.2.0/24 192.0.2.14", "10.42.4.0/24 192.0.2.6")) || !reflect.DeepEqual(drop, ways("10.42.3.0/24 192.0.2.5")) {
		t.Errorf("put %v, drop %v", put, drop)
	}
}
