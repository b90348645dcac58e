package doctor

import (
	"context"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"kith.dev/core/api"
)

// On a machine of its own: a bridge with two pods, routes to another node's, and each of them taken away.
func TestRoutesToPodsThatAreGoneAreFound(t *testing.T) {
	eth := apart(t)
	must(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}))
	bridge, err := netlink.LinkByName("cni0")
	must(t, err)
	must(t, netlink.LinkSetUp(bridge))
	must(t, netlink.AddrAdd(bridge, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 42, 0, 1), Mask: net.CIDRMask(24, 32)}}))
	route := func(to string) *netlink.Route {
		_, n, err := net.ParseCIDR(to)
		must(t, err)
		return &netlink.Route{Dst: n, Gw: net.IPv4(192, 168, 7, 3), LinkIndex: eth.Attrs().Index}
	}
	must(t, netlink.RouteAdd(route("10.42.1.0/24")))

	node := func(name, pods string) Node { return Node{Name: name, Ready: true, Pods: netip.MustParsePrefix(pods)} }
	is := Cluster{Pods: []netip.Addr{netip.MustParseAddr("10.42.0.5"), netip.MustParseAddr("10.42.0.6")}, Others: []Node{node("two", "10.42.1.0/24")}}
	e := Engine{Kind: "k3s", NodeIP: netip.MustParseAddr("192.168.7.2"), Routed: true, Bridge: "cni0",
		Ready:   func(context.Context) (string, error) { return "v1.36.3", nil },
		Node:    func(context.Context) (Node, error) { return Node{Name: "one", Ready: true}, nil },
		Cluster: func(context.Context) (Cluster, error) { return is, nil }}
	routes := func() (found []api.Finding) {
		e.Check(t.Context(), func(f api.Finding) {
			if f.Name == "pod-routes" {
				found = append(found, f)
			}
		})
		return found
	}
	says := func(state api.CheckState, words ...string) {
		t.Helper()
		got := routes()
		if len(got) != 1 || got[0].State != state {
			t.Fatalf("%+v", got)
		}
		for _, w := range words {
			if all := got[0].What + "; " + got[0].Why + "; " + got[0].Do; !strings.Contains(all, w) {
				t.Errorf("%q is not in %q", w, all)
			}
		}
	}
	says(api.CheckOK, "this node: 2", "other nodes: 1")

	must(t, netlink.LinkSetDown(bridge)) // takes its route along
	says(api.CheckFail, "2 of 2 pods", "10.42.0.5", "by eth0", "ip link set cni0 up")
	must(t, netlink.LinkSetUp(bridge))
	says(api.CheckOK)

	must(t, netlink.RouteDel(route("10.42.1.0/24")))
	says(api.CheckFail, "node two", "10.42.1.0/24", "by eth0")
	e.Routed = false // a cloud may have them behind the default route
	says(api.CheckOK, "this node: 2")
	is.Others = append(is.Others, node("three", "10.42.2.0/24")) // and not where others have a route
	must(t, netlink.RouteAdd(route("10.42.2.0/24")))
	says(api.CheckFail, "node two")
	is.Others[0].Ready = false // that is told already
	says(api.CheckOK)

	e.NodeIP = netip.MustParseAddr("192.168.7.9") // the cluster is elsewhere
	if got := routes(); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	// A pod that ends while it is looked at.
	e.NodeIP = netip.MustParseAddr("192.168.7.2")
	before := Cluster{Pods: append(is.Pods, netip.MustParseAddr("10.99.0.1"))}
	asked := 0
	e.Cluster = func(context.Context) (Cluster, error) {
		if asked++; asked == 1 {
			return before, nil
		}
		return is, nil
	}
	says(api.CheckOK)
}

func TestWhatElseIsWrongInACluster(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "c.sock")
	is := Cluster{Others: []Node{{Name: "two", Ready: true}, {Name: "three", Why: "Kubelet stopped posting node status."}}, Unled: []string{"three"}}
	e := Engine{Kind: "kubeconfig", Runtime: socket,
		Ready:   func(context.Context) (string, error) { return "v1.36.3", nil },
		Node:    func(context.Context) (Node, error) { return Node{Name: "one", Ready: true}, nil },
		Cluster: func(context.Context) (Cluster, error) { return is, nil }}
	look := func() map[string]api.Finding {
		found := map[string]api.Finding{}
		e.Check(t.Context(), func(f api.Finding) { found[f.Name] = f })
		return found
	}
	found := look()
	if f := found["nodes"]; f.State != api.CheckWarning || !strings.Contains(f.What, "node three") || f.Why != is.Others[1].Why {
		t.Errorf("%+v", f)
	}
	if f := found["overlay"]; f.State != api.CheckFail || !strings.Contains(f.What, "three") {
		t.Errorf("%+v", f)
	}
	if f := found["runtime"]; f.State != api.CheckFail || !strings.Contains(f.Why, socket) {
		t.Errorf("%+v", f)
	}
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	is.Unled, is.Fencing = nil, Fencing{Known: true, Takes: []string{"one"}, Out: []LeftOut{{Node: "three", Why: "UDP", Cut: true}, {Node: "two", Why: "no fence"}}}
	if f := look()["overlay"]; f.State != api.CheckFail || !strings.Contains(f.What, "three") || f.Why != "UDP" {
		t.Errorf("%+v", f)
	}
	is = Cluster{Others: []Node{{Name: "two", Ready: true}}}
	found = look()
	if found["nodes"].State != api.CheckOK || found["runtime"].State != api.CheckOK || found["overlay"].Name != "" {
		t.Errorf("%+v", found)
	}
}
