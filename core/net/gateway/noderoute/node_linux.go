package noderoute

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
)

// Node is the kernel's side of the device.
type Node struct {
	Index int // of the device

	name string
	mtu  int // of the device
	addr netip.Addr
	six  netip.Addr // of IPv6; none: the device has none of it
	log  *slog.Logger

	gateways []netip.Addr // of guests' ranges, on the device
}

// Route leads a range into the device. MTU is that of the way behind it. Where the host itself has another use for the range, the route is for
// what Pods send, this cluster's own, and for what comes from the device.
type Route struct {
	To   netip.Prefix
	MTU  int
	Pods netip.Prefix
}

// families that the device has.
func (h *Node) families() []int {
	if h.six.IsValid() {
		return both
	}
	return both[:1]
}

var both = []int{unix.AF_INET, unix.AF_INET6}

// familyOf an address.
func familyOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Up configures the device, which gets addr as its own address, and removes what a killed predecessor left.
func Up(device string, addr netip.Addr, log *slog.Logger) (*Node, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", device, err)
	}
	h := &Node{Index: link.Attrs().Index, name: device, mtu: link.Attrs().MTU, addr: addr, log: log}
	h.Down()
	// What a container may not write, for its /proc/sys is read-only, it may by netlink. Why each: see below.
	if err := hostnet.Configure(h.Index, map[uint16]uint32{hostnet.RPFilter: 2, hostnet.AcceptLocal: 1, hostnet.AcceptRedirects: 0, hostnet.SendRedirects: 0, hostnet.Forwarding: 1}); err != nil {
		log.Debug("settings by netlink", "device", device, "err", err)
	}
	// Without an address of it (UseIPv6), IPv6 would only bring router solicitations to drop.
	h.sysctl("net/ipv6/conf/"+h.name+"/disable_ipv6", "1")
	// Loose: the kernel takes the stricter of this and the setting for all, and strict may fail while routes change.
	h.sysctl("net/ipv4/conf/"+h.name+"/rp_filter", "2")
	// A home's node has the addresses that this node has.
	h.sysctl("net/ipv4/conf/"+h.name+"/accept_local", "1")
	h.sysctl("net/ipv4/conf/"+h.name+"/accept_redirects", "0")
	h.sysctl("net/ipv4/conf/"+h.name+"/send_redirects", "0")
	h.sysctl("net/ipv4/ip_forward", "1")
	h.sysctl("net/ipv4/conf/"+h.name+"/forwarding", "1")
	if err = h.syncAddresses(nil); err == nil {
		if err = netlink.LinkSetUp(link); err != nil {
			err = fmt.Errorf("set %s up: %w", h.name, err)
		}
	}
	if err == nil {
		err = h.syncRules(nil, nil)
	}
	if err != nil {
		h.Down()
		return nil, err
	}
	return h, nil
}

// UseIPv6 enables IPv6 on the device and gives it an address. It has no link-local address, ignores router advertisements and does no neighbour
// discovery, since only peers are behind it.
func (h *Node) UseIPv6(addr netip.Addr) error {
	conf := "net/ipv6/conf/" + h.name
	h.sysctl(conf+"/accept_ra", "0")
	h.sysctl(conf+"/autoconf", "0")
	h.sysctl(conf+"/accept_redirects", "0")
	h.sysctl(conf+"/addr_gen_mode", "1") // IN6_ADDR_GEN_MODE_NONE
	h.sysctl(conf+"/disable_ipv6", "0")
	if err := hostnet.Forward6(); err != nil {
		return err
	}
	h.six = addr
	if err := h.syncAddresses(nil); err != nil {
		return err
	}
	return h.syncRules(nil, nil)
}

// Sync makes addresses, rules and routes those wanted: ranges that lead into the device, addresses that lead around it although one of
// the ranges holds them, and tenants.
func (h *Node) Sync(into []Route, around []netip.Addr, tenants []Tenant) error {
	if !h.six.IsValid() {
		into = slices.DeleteFunc(slices.Clone(into), func(r Route) bool { return r.To.Addr().Is6() })
		tenants = slices.Clone(tenants)
		for i := range tenants {
			tenants[i] = tenants[i].ofIPv4()
		}
	}
	want := h.tenantRoutes(tenants)
	var pods []netip.Prefix // for which there are routes that the host has not
	for _, r := range into {
		table := unix.RT_TABLE_MAIN
		if r.Pods.IsValid() {
			table = podTable
			if !slices.Contains(pods, r.Pods) {
				pods = append(pods, r.Pods)
			}
		}
		want = append(want, h.into(r, table))
	}
	var others []netlink.Route
	var err error
	if len(around) > 0 {
		others, err = hostnet.MainRoutes(h.Index)
	}
	for _, a := range around {
		if r, ok := h.around(a, others); ok {
			want = append(want, r)
		}
	}
	// Routes before the rules that lead to them.
	return errors.Join(err, h.syncAddresses(tenants), syncRoutes(h.families(), want), h.syncRules(tenants, pods))
}

// Down leaves nothing behind. Addresses, and routes over the device, go with it.
func (h *Node) Down() {
	var errs []error
	for _, family := range both {
		errs = append(errs, syncRules(family, nil))
	}
	if err := errors.Join(append(errs, syncRoutes(both, nil))...); err != nil {
		h.log.Debug("old routes or rules not removed", "err", err)
	}
}

// syncRoutes makes our routes of these families those wanted, and touches only what differs. There may be thousands: MaxSpace of each tenant.
func syncRoutes(families []int, want []netlink.Route) error {
	var list []netlink.Route
	for _, family := range families {
		of, err := netlink.RouteListFiltered(family, &netlink.Route{Protocol: hostnet.Protocol, Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		list = append(list, of...)
	}
	type key struct {
		table int
		to    netip.Prefix
	}
	have := map[key]netlink.Route{}
	for _, r := range list {
		if r.Dst != nil {
			have[key{r.Table, hostnet.Prefix(r.Dst)}] = r
		}
	}
	var errs []error
	for _, w := range want {
		k := key{w.Table, hostnet.Prefix(w.Dst)}
		r, there := have[k]
		delete(have, k)
		if there && r.Type == w.Type && (r.LinkIndex == w.LinkIndex || w.LinkIndex == 0) && r.MTU == w.MTU && r.Gw.Equal(w.Gw) {
			continue
		}
		if err := netlink.RouteReplace(&w); err != nil {
			errs = append(errs, fmt.Errorf("route to %s: %w", w.Dst, err))
		}
	}
	for _, r := range have {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// into leads a range into the device. A narrower path is told the kernel here, and it tells the pods.
func (h *Node) into(to Route, table int) netlink.Route {
	own := h.addr
	if to.To.Addr().Is6() {
		own = h.six
	}
	r := netlink.Route{
		Dst: hostnet.IPNet(to.To), LinkIndex: h.Index, Scope: netlink.SCOPE_LINK, Protocol: hostnet.Protocol,
		Table: table, Type: unix.RTN_UNICAST, Src: own.AsSlice(),
	}
	if to.MTU < h.mtu {
		r.MTU = to.MTU
	}
	return r
}

// around is a route to one address that leaves the tunnel aside: the best of the others.
func (h *Node) around(a netip.Addr, others []netlink.Route) (netlink.Route, bool) {
	best, bits := -1, -1
	for i, r := range others {
		p := hostnet.Prefix(r.Dst)
		if !p.IsValid() {
			p = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		if p.Contains(a) && (p.Bits() > bits || p.Bits() == bits && r.Priority < others[best].Priority) {
			best, bits = i, p.Bits()
		}
	}
	if best < 0 || bits == 32 || others[best].LinkIndex == 0 {
		return netlink.Route{}, false
	}
	r := netlink.Route{
		Dst: hostnet.IPNet(netip.PrefixFrom(a, 32)), LinkIndex: others[best].LinkIndex, Gw: others[best].Gw, Protocol: hostnet.Protocol,
		Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST,
	}
	if r.Gw == nil {
		r.Scope = netlink.SCOPE_LINK
	}
	return r, true
}

// sysctl writes only what differs, for setting ip_forward resets others, and complains at most: a container may
// have it read-only and right.
func (h *Node) sysctl(name, value string) {
	path := "/proc/sys/" + name
	if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == value {
		return
	} else if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err := os.WriteFile(path, []byte(value), 0); errors.Is(err, unix.EROFS) && strings.HasPrefix(name, "net/ipv6/") {
		h.log.Debug("kernel setting not changed; the device has IPv6, which nobody uses", "setting", name, "err", err)
	} else if err != nil {
		h.log.Warn("kernel setting not changed; pods may not reach peers", "setting", name, "value", value, "err", err)
	}
}
