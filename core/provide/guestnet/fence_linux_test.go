package guestnet

import (
	"testing"

	"net/netip"

	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/fence"
)

// TestTheFenceLetsServicesPass: it judges packets behind the maps and kube-proxy, and with the addresses of home.
func TestTheFenceLetsServicesPass(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.Set(services))
	f, err := fence.New(fence.Config{
		Tunnel: netplan.Tunnel, Group: Group, Pods: laptops.Pods, Services: laptops.Services, Node: addr(node), DNS: laptops.DNS(),
		Kernel: new(hostnet.Changes), Log: silent,
	})
	w.must(err)
	w.must(f.Set(fence.Relations{Tenants: []fence.Tenant{
		{Consumer: "alice", Guests: []netip.Prefix{ofAlice}, Home: []netip.Prefix{laptops.Pods}},
		{Consumer: "dora", Guests: []netip.Prefix{ofDora}, Home: []netip.Prefix{laptops.Pods}},
	}}))
	if netplan.Bridge != "cni0" {
		t.Fatal("the world has another bridge")
	}
	for _, c := range []struct{ from, to, want string }{
		{"web", pod + ":8080", "alice " + web}, {"dora", pod + ":8080", "dora's " + dora},
		{"web", "10.43.9.9:80", "alice " + web}, {"dora", "10.43.9.9:80", "dora's " + dora},
		{"web", "10.43.9.8:80", "db " + web}, {"web", "10.43.9.7:80", "web 10.127.0.1"}, {"web", "10.43.0.10:53", "host " + web},
		{"alice", web + ":8080", "web " + pod}, {"host", web + ":8080", "web 10.127.0.1"},
		{"own", web + ":8080", "web 10.127.0.1"}, {"own", dora + ":8080", "dora 10.127.4.1"}, {"lan", laptop + ":30080", "web " + neighbour},
		{"web", "10.127.0.1:8080", ""}, {"web", "10.43.9.50:80", ""}, {"web", dora + ":8080", ""}, {"dora", "10.43.7.8:80", ""},
		{"web", laptop + ":8080", ""}, {"web", neighbour + ":8080", ""}, {"web", "10.43.0.10:54", ""},
	} {
		if got := w.ask(c.from, c.to); got != c.want {
			t.Errorf("%s at %s: %q, want %q", c.from, c.to, got, c.want)
		}
	}
	if got := w.askUDP("web", "10.43.0.10:53"); got != "host "+web+" from 10.43.0.10:53" {
		t.Errorf("DNS by UDP: %q", got)
	}
	w.refused(t)
}
