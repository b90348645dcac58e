package fence

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/guestnet"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func (p plan) set(name string) []nftables.SetElement {
	at := slices.IndexFunc(p.sets, func(s set) bool { return s.name == name })
	if at < 0 {
		return nil
	}
	return p.sets[at].elements
}

// show gives elements as "address", "address>chain", or "first-behind" for ranges.
func show(list []nftables.SetElement) (out []string) {
	for _, e := range list {
		a, _ := netip.AddrFromSlice(e.Key)
		switch {
		case e.IntervalEnd:
			out[len(out)-1] += "-" + a.String()
		case e.VerdictData != nil:
			out = append(out, a.String()+">"+e.VerdictData.Chain)
		default:
			out = append(out, a.String())
		}
	}
	return out
}

func TestWhoseAddressItIs(t *testing.T) {
	guest := func(uid string, list ...string) Guest { return Guest{UID: uid, Addresses: addrs(list...)} }
	tenants := []Tenant{
		{Consumer: "b", Guests: []Guest{guest("b1", "10.42.0.7"), guest("b2", "10.42.0.8", "fd00::8")}},
		{Consumer: "a", Guests: []Guest{guest("a1", "10.42.0.5"), guest("a2", "10.42.0.8"), guest("a3", "10.42.0.5")}},
		{Consumer: "c", Guests: []Guest{guest("c1", "10.42.255.1", "192.168.1.1"), guest("c2")}},
	}
	for _, tt := range []struct {
		name            string
		group           uint32
		links           map[string][]netip.Addr
		guests, tenants []string
	}{
		{
			name:    "by status: what two claim is nobody's, what cannot be a pod's is not believed",
			guests:  []string{"10.42.0.5", "10.42.0.7", "10.42.0.8"},
			tenants: []string{"10.42.0.5>tenant-a", "10.42.0.7>tenant-b"},
		},
		{
			name: "by link: a status does not count", group: guestnet.Group,
			links:   map[string][]netip.Addr{"b1": addrs("10.42.255.130"), "c2": addrs("10.42.255.131"), "stranger": addrs("10.42.255.132")},
			guests:  []string{"10.42.255.130", "10.42.255.131"},
			tenants: []string{"10.42.255.130>tenant-b", "10.42.255.131>tenant-c"},
		},
	} {
		cfg := testConfig
		cfg.Group = tt.group
		p := planOf(cfg, Relations{Tenants: tenants}, hostState{links: tt.links})
		if got := show(p.set(guestsSet)); !slices.Equal(got, tt.guests) {
			t.Errorf("%s: guests %v, want %v", tt.name, got, tt.guests)
		}
		if got := show(p.set(tenantsMap)); !slices.Equal(got, tt.tenants) {
			t.Errorf("%s: tenants %v, want %v", tt.name, got, tt.tenants)
		}
	}
}

func TestRangesAreJoined(t *testing.T) {
	for _, tt := range []struct {
		in   []netip.Prefix
		want []string
	}{
		{nil, nil},
		{ranges("10.76.0.0/16"), []string{"10.76.0.0-10.77.0.0"}},
		{ranges("10.77.0.0/16", "10.76.0.0/16", "10.80.0.0/16"), []string{"10.76.0.0-10.78.0.0", "10.80.0.0-10.81.0.0"}},
		{ranges("10.0.0.0/8", "10.42.0.0/16", "0.0.0.0/8"), []string{"0.0.0.0-1.0.0.0", "10.0.0.0-11.0.0.0"}},
		{ranges("224.0.0.0/3", "fd00::/8"), []string{"224.0.0.0"}}, // to the end
		{[]netip.Prefix{{}, netip.MustParsePrefix("10.1.2.3/32")}, []string{"10.1.2.3-10.1.2.4"}},
	} {
		if got := show(spans(tt.in)); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestPlanIsTheSameForTheSameWorld(t *testing.T) {
	rel := twoTenants()
	back := Relations{Tenants: slices.Clone(rel.Tenants), Providers: rel.Providers}
	slices.Reverse(back.Tenants)
	host := hostState{links: map[string][]netip.Addr{"uid-web1": addrs(web1), "uid-dora": addrs(dora)}, routers: addrs("10.1.1.2", "10.1.1.1")}
	if !reflect.DeepEqual(planOf(testConfig, rel, host), planOf(testConfig, back, host)) {
		t.Error("the order of what is told matters")
	}
}

func TestWhatLiesBehindADefaultRoute(t *testing.T) {
	links := []netlink.Link{
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 2, Name: "wlan0"}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 3, Name: "wg0"}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 4, Name: "veth1", Group: guestnet.Group, Alias: "uid-1"}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 5, Name: "veth2", Alias: "uid-2"}},
	}
	to := func(dst string) *net.IPNet {
		_, n, _ := net.ParseCIDR(dst)
		return n
	}
	hop := func(s string) net.IP { return net.ParseIP(s).To4() }
	for _, tt := range []struct {
		name    string
		routes  []netlink.Route
		routers []netip.Addr
		uplinks []string
		links   map[string][]netip.Addr
	}{
		{"none", []netlink.Route{{LinkIndex: 2, Dst: to("192.168.1.0/24"), Type: unix.RTN_UNICAST}}, nil, nil, nil},
		{"a router", []netlink.Route{{LinkIndex: 2, Gw: hop("192.168.1.1"), Type: unix.RTN_UNICAST}}, addrs("192.168.1.1"), nil, nil},
		{"a router, a static route", []netlink.Route{
			{LinkIndex: 2, Gw: hop("192.168.1.1"), Dst: to("0.0.0.0/0"), Type: unix.RTN_UNICAST},
			{LinkIndex: 2, Gw: hop("192.168.1.2"), Dst: to("8.0.0.0/8"), Type: unix.RTN_UNICAST},
		}, addrs("192.168.1.1"), nil, nil},
		{"a VPN that took the default route in halves", []netlink.Route{
			{LinkIndex: 2, Gw: hop("192.168.1.1"), Type: unix.RTN_UNICAST},
			{LinkIndex: 3, Dst: to("0.0.0.0/1"), Type: unix.RTN_UNICAST}, {LinkIndex: 3, Dst: to("128.0.0.0/1"), Type: unix.RTN_UNICAST},
		}, addrs("192.168.1.1"), []string{"wg0"}, nil},
		{"two routers at once", []netlink.Route{{Type: unix.RTN_UNICAST, MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: 2, Gw: hop("192.168.1.9")}, {LinkIndex: 2, Gw: hop("192.168.1.1")},
		}}}, addrs("192.168.1.1", "192.168.1.9"), nil, nil},
		{"no way at all", []netlink.Route{{Dst: to("0.0.0.0/0"), Type: unix.RTN_UNREACHABLE}}, nil, nil, nil},
		{"links of guests", []netlink.Route{
			{LinkIndex: 4, Dst: to("10.42.255.130/32"), Type: unix.RTN_UNICAST},
			{LinkIndex: 4, Dst: to("10.42.255.129/32"), Type: unix.RTN_LOCAL},
			{LinkIndex: 5, Dst: to("10.42.255.131/32"), Type: unix.RTN_UNICAST}, // not marked
		}, nil, nil, map[string][]netip.Addr{"uid-1": addrs("10.42.255.130")}},
	} {
		got := hostStateOf(guestnet.Group, links, tt.routes)
		want := hostState{links: tt.links, routers: tt.routers, uplinks: tt.uplinks}
		if want.links == nil {
			want.links = map[string][]netip.Addr{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
}
