package fence

import (
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/nft"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func (p plan) set(name string) []nftables.SetElement {
	at := slices.IndexFunc(p.fence[0].Sets, func(s nft.Set) bool { return s.Name == name })
	if at < 0 {
		return nil
	}
	return p.fence[0].Sets[at].Elements
}

// show gives elements as "first-behind", with ">chain" in a map, and without "-behind" for a range that ends where addresses do.
func show(list []nftables.SetElement) (out []string) {
	for _, e := range list {
		a, _ := netip.AddrFromSlice(e.Key)
		switch {
		case e.IntervalEnd:
			from, to, leads := strings.Cut(out[len(out)-1], ">")
			if out[len(out)-1] = from + "-" + a.String(); leads {
				out[len(out)-1] += ">" + to
			}
		case e.VerdictData != nil:
			out = append(out, a.String()+">"+e.VerdictData.Chain)
		default:
			out = append(out, a.String())
		}
	}
	return out
}

func TestWhoseAddressItIs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		tenants []Tenant
		want    []string
	}{
		{"by range", []Tenant{{Consumer: "b", Guests: ranges("10.65.2.0/24")}, {Consumer: "a", Guests: ranges("10.65.1.0/24")}, {Consumer: "c"}},
			[]string{"10.65.1.0-10.65.2.0>tenant-a", "10.65.2.0-10.65.3.0>tenant-b"}},
		{"ranges that hold each other are nobody's", []Tenant{{Consumer: "a", Guests: ranges("10.65.0.0/16")}, {Consumer: "b", Guests: ranges("10.65.2.0/24")}, {Consumer: "c", Guests: ranges("10.66.2.0/24")}},
			[]string{"10.66.2.0-10.66.3.0>tenant-c"}},
		{"by status: what two claim is nobody's", []Tenant{
			{Consumer: "b", Guests: ranges("10.42.0.7/32", "10.42.0.8/32")}, {Consumer: "a", Guests: ranges("10.42.0.5/32", "10.42.0.8/32", "10.42.0.5/32", "10.42.0.6/32")},
		}, []string{"10.42.0.5-10.42.0.7>tenant-a", "10.42.0.7-10.42.0.8>tenant-b"}},
		{"not by IPv6", []Tenant{{Consumer: "a", Guests: append(ranges("fd00::8/128"), netip.Prefix{})}}, nil},
	} {
		p := planOf(testConfig, allowed, Relations{Tenants: tt.tenants}, hostState{})
		if got := show(p.set(tenantsMap)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: tenants %v, want %v", tt.name, got, tt.want)
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
		if got := show(nft.Spans(tt.in)); !slices.Equal(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestPlanIsTheSameForTheSameWorld(t *testing.T) {
	rel := twoTenants()
	back := Relations{Tenants: slices.Clone(rel.Tenants), Providers: slices.Clone(rel.Providers)}
	slices.Reverse(back.Tenants)
	slices.Reverse(back.Providers)
	host := hostState{routers: addrs("10.1.1.2", "10.1.1.1")}
	if !reflect.DeepEqual(planOf(testConfig, allowed, rel, host), planOf(testConfig, allowed, back, host)) {
		t.Error("the order of what is told matters")
	}
}

func TestWhatLiesBehindADefaultRoute(t *testing.T) {
	links := []netlink.Link{
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 2, Name: "wlan0"}},
		&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 3, Name: "wg0"}},
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
	}{
		{"none", []netlink.Route{{LinkIndex: 2, Dst: to("192.168.1.0/24"), Type: unix.RTN_UNICAST}}, nil, nil},
		{"a router", []netlink.Route{{LinkIndex: 2, Gw: hop("192.168.1.1"), Type: unix.RTN_UNICAST}}, addrs("192.168.1.1"), nil},
		{"a router, a static route", []netlink.Route{
			{LinkIndex: 2, Gw: hop("192.168.1.1"), Dst: to("0.0.0.0/0"), Type: unix.RTN_UNICAST},
			{LinkIndex: 2, Gw: hop("192.168.1.2"), Dst: to("8.0.0.0/8"), Type: unix.RTN_UNICAST},
		}, addrs("192.168.1.1"), nil},
		{"a VPN that took the default route in halves", []netlink.Route{
			{LinkIndex: 2, Gw: hop("192.168.1.1"), Type: unix.RTN_UNICAST},
			{LinkIndex: 3, Dst: to("0.0.0.0/1"), Type: unix.RTN_UNICAST}, {LinkIndex: 3, Dst: to("128.0.0.0/1"), Type: unix.RTN_UNICAST},
		}, addrs("192.168.1.1"), []string{"wg0"}},
		{"two routers at once", []netlink.Route{{Type: unix.RTN_UNICAST, MultiPath: []*netlink.NexthopInfo{
			{LinkIndex: 2, Gw: hop("192.168.1.9")}, {LinkIndex: 2, Gw: hop("192.168.1.1")},
		}}}, addrs("192.168.1.1", "192.168.1.9"), nil},
		{"no way at all", []netlink.Route{{Dst: to("0.0.0.0/0"), Type: unix.RTN_UNREACHABLE}}, nil, nil},
	} {
		got, want := hostStateOf(links, tt.routes), hostState{routers: tt.routers, uplinks: tt.uplinks}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
}
