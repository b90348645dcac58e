package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/gateway"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/nft"
)

// Tables of routes, of which core/net/gateway/noderoute has none, and the rules that lead to them.
const (
	tableToPeers = 0x6b<<24 | 1
	tableToPods  = 0x6b<<24 | 2
	ruleToPeers  = 32760 // behind those of network plugins; main comes after it
	ruleToPods   = 53    // before those that noderoute has for what comes out of the tunnel
)

const overhead = 50 // of VXLAN over IPv4: outer Ethernet is not counted, inner is

// Kernel applies a Plan to this node's kernel. Safe for concurrent use.
type Kernel struct {
	cfg    Config
	log    *slog.Logger
	kernel *hostnet.Changes
	every  time.Duration // that the gateway's node is asked; 0: asks

	mu    sync.Mutex
	plan  *Plan // nil: Set was not called yet, and what an earlier process left stays
	rules nft.Keeper
}

// NewKernel touches nothing.
func NewKernel(cfg Config, kernel *hostnet.Changes, log *slog.Logger) *Kernel {
	return &Kernel{cfg: cfg, log: log, kernel: kernel, rules: nft.Keeper{Name: Table, Log: log}}
}

// Set applies the plan: it creates what is missing and removes what is left over, and touches nothing that is right already.
func (k *Kernel) Set(p Plan) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plan != nil && k.plan.Gateway.IsValid() && k.plan.Gateway != p.Gateway {
		k.leave(k.plan.Gateway) // while packets still go there
	}
	k.plan = &p
	return k.keep()
}

// Run restores what others remove, until ctx ends. The state stays then; the next process takes it over.
func (k *Kernel) Run(ctx context.Context) error {
	around, stop, err := k.kernel.Listen(hostnet.All)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	defer stop()
	return nft.Watch(ctx, around, func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		err := k.keep()
		if err != nil {
			k.log.Warn("the way between this node and the gateway's is not complete, trying again", "err", err)
		}
		return err
	}, &k.rules)
}

// keep brings the kernel up to date. The caller has mu.
func (k *Kernel) keep() error {
	if k.plan == nil {
		return nil
	}
	p := *k.plan
	link, err := k.device(p)
	if err != nil {
		return err
	}
	free, err := k.free(p, link.Attrs().Index)
	if err != nil {
		return err
	}
	return errors.Join(
		k.rules.Keep([]nft.Table{k.cfg.table(p)}, true), // first: what it keeps out must never get in
		hostnet.Whole(func() error { return k.neighbours(p, link) }),
		hostnet.Whole(func() error { return k.routes(p, free, link) }),
		k.syncRules(p))
}

// device makes the VXLAN, or finds it as it is to be.
func (k *Kernel) device(p Plan) (netlink.Link, error) {
	under, err := linkOf(p.Address)
	if err != nil {
		return nil, err
	}
	want := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: Device, MTU: under.Attrs().MTU - overhead, HardwareAddr: hardware(p.Address)},
		VxlanId:   int(k.cfg.ID), Port: int(k.cfg.Port), SrcAddr: net.IP(p.Address.AsSlice()), VtepDevIndex: under.Attrs().Index, Learning: false,
	}
	link, err := netlink.LinkByName(Device)
	if is, there := link.(*netlink.Vxlan); err == nil && (!there || is.VxlanId != want.VxlanId || is.Port != want.Port || !is.SrcAddr.Equal(want.SrcAddr) ||
		is.VtepDevIndex != want.VtepDevIndex || is.MTU != want.MTU || is.HardwareAddr.String() != want.HardwareAddr.String()) {
		if err := netlink.LinkDel(link); err != nil {
			return nil, fmt.Errorf("remove device %s, which is for other addresses: %w", Device, err)
		}
		link, err = nil, netlink.LinkNotFoundError{}
	}
	if err != nil {
		if err := netlink.LinkAdd(want); err != nil {
			return nil, fmt.Errorf("make device %s: %w; it needs NET_ADMIN, the kernel's module vxlan, and UDP port %d", Device, err, k.cfg.Port)
		}
		if link, err = netlink.LinkByName(Device); err != nil {
			return nil, fmt.Errorf("find device %s: %w", Device, err)
		}
		// Loose: the way back may be another while the gateway moves.
		if err := hostnet.Configure(link.Attrs().Index, map[uint16]uint32{
			hostnet.RPFilter: 2, hostnet.AcceptRedirects: 0, hostnet.SendRedirects: 0, hostnet.Forwarding: 1,
		}); err != nil {
			k.log.Warn("settings of the device not changed; pods may not reach peers", "device", Device, "err", err)
		}
		_ = netlink.LinkSetIP6AddrGenMode(link, 1) // no address, so no router is asked for one
	}
	if err := k.address(p, link); err != nil {
		return nil, err
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(link); err != nil {
			return nil, fmt.Errorf("set %s up: %w", Device, err)
		}
	}
	return link, nil
}

func (k *Kernel) address(p Plan, link netlink.Link) error {
	have, err := netlink.AddrList(link, unix.AF_INET)
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", Device, err)
	}
	there := false
	for _, a := range have {
		if is := hostnet.Prefix(a.IPNet); p.Own.IsValid() && is == netip.PrefixFrom(p.Own, 32) {
			there = true
		} else if err := netlink.AddrDel(link, &a); err != nil {
			return fmt.Errorf("take %s from %s: %w", a.IPNet, Device, err)
		}
	}
	if there || !p.Own.IsValid() {
		return nil
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: hostnet.IPNet(netip.PrefixFrom(p.Own, 32))}); err != nil {
		return fmt.Errorf("give %s to %s: %w", p.Own, Device, err)
	}
	return nil
}

// linkOf finds the link that has an address.
func linkOf(a netip.Addr) (netlink.Link, error) {
	all, err := netlink.AddrList(nil, unix.AF_INET)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, one := range all {
		if ip, ok := netip.AddrFromSlice(one.IP); ok && ip.Unmap() == a {
			return netlink.LinkByIndex(one.LinkIndex)
		}
	}
	return nil, fmt.Errorf("this host has no address %s, which the cluster's node has as its InternalIP: is nodeName that of another?", a)
}

// free are the ranges of peers that this host has no other use for.
func (k *Kernel) free(p Plan, device int) (list []netip.Prefix, err error) {
	if len(p.ToPeers) == 0 {
		return nil, nil
	}
	inUse, err := hostnet.InUse(Device, 0)
	if err != nil {
		return nil, err
	}
	for _, r := range p.ToPeers {
		if i := slices.IndexFunc(inUse, r.Overlaps); i >= 0 {
			k.log.Warn("pods of this node do not reach a range of peers: the node has another use for it", "range", r, "used", inUse[i])
			continue
		}
		list = append(list, r)
	}
	return list, nil
}

// neighbours says where the ends at other nodes are: an entry for the next hop, and one for the bridge's side of the device.
func (k *Kernel) neighbours(p Plan, link netlink.Link) error {
	index := link.Attrs().Index
	var want []netlink.Neigh
	for _, end := range p.Ends {
		ip, mac := net.IP(end.AsSlice()), hardware(end)
		want = append(want,
			netlink.Neigh{LinkIndex: index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST, IP: ip, HardwareAddr: mac},
			netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: ip, HardwareAddr: mac})
	}
	var errs []error
	for _, family := range []int{unix.AF_INET, unix.AF_BRIDGE} {
		have, err := netlink.NeighList(index, family)
		if err != nil {
			return fmt.Errorf("neighbours on %s: %w", Device, err)
		}
		same := func(a, b netlink.Neigh) bool {
			return a.IP.Equal(b.IP) && a.HardwareAddr.String() == b.HardwareAddr.String()
		}
		for _, w := range want {
			if w.Family == family && !slices.ContainsFunc(have, func(h netlink.Neigh) bool { return same(h, w) && h.State&netlink.NUD_PERMANENT != 0 }) {
				if err := netlink.NeighSet(&w); err != nil {
					errs = append(errs, fmt.Errorf("neighbour %s: %w", w.IP, err))
				}
			}
		}
		for _, h := range have {
			if h.State&netlink.NUD_PERMANENT != 0 && h.IP != nil && !slices.ContainsFunc(want, func(w netlink.Neigh) bool { return same(h, w) }) {
				h.Family = family
				if err := netlink.NeighDel(&h); err != nil && !errors.Is(err, unix.ENOENT) {
					errs = append(errs, fmt.Errorf("remove neighbour %s: %w", h.IP, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// routes makes both tables those wanted.
func (k *Kernel) routes(p Plan, toPeers []netip.Prefix, link netlink.Link) error {
	route := func(table int, to netip.Prefix, by netip.Addr, mtu int) netlink.Route {
		r := netlink.Route{
			Dst: hostnet.IPNet(to), Gw: net.IP(by.AsSlice()), LinkIndex: link.Attrs().Index, Flags: int(netlink.FLAG_ONLINK), Table: table,
			Protocol: hostnet.NodesProtocol, Type: unix.RTN_UNICAST, MTU: mtu,
		}
		if p.Own.IsValid() {
			r.Src = net.IP(p.Own.AsSlice())
		}
		return r
	}
	var want []netlink.Route
	for _, to := range toPeers {
		want = append(want, route(tableToPeers, to, p.Gateway, min(gateway.DefaultMTU, link.Attrs().MTU))) // so this node tells its pods, and not the gateway's
	}
	for _, r := range p.ToPods {
		want = append(want, route(tableToPods, r.To, r.By, 0))
	}
	have, err := ours()
	if err != nil {
		return err
	}
	var errs []error
	for _, w := range want {
		i := slices.IndexFunc(have, func(h netlink.Route) bool {
			return h.Table == w.Table && hostnet.Prefix(h.Dst) == hostnet.Prefix(w.Dst)
		})
		if i >= 0 {
			h := have[i]
			have = slices.Delete(have, i, i+1)
			if h.Gw.Equal(w.Gw) && h.LinkIndex == w.LinkIndex && h.MTU == w.MTU && h.Src.Equal(w.Src) {
				continue
			}
		}
		if err := netlink.RouteReplace(&w); err != nil {
			errs = append(errs, fmt.Errorf("route to %s by node %s: %w", w.Dst, w.Gw, err))
		}
	}
	return errors.Join(append(errs, removeRoutes(have))...)
}

// ours are the routes of this room.
func ours() ([]netlink.Route, error) {
	list, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Protocol: hostnet.NodesProtocol, Table: unix.RT_TABLE_UNSPEC},
		netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return list, nil
}

func removeRoutes(list []netlink.Route) error {
	var errs []error
	for _, r := range list {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// syncRules has the tables be asked: that of the answers for what comes out of the tunnel.
func (k *Kernel) syncRules(p Plan) error {
	var want []*netlink.Rule
	rule := func(priority, table int, from string) {
		r := netlink.NewRule()
		r.Family, r.Protocol, r.Priority, r.Table, r.IifName = unix.AF_INET, hostnet.NodesProtocol, priority, table, from
		want = append(want, r)
	}
	if len(p.ToPeers) > 0 {
		rule(ruleToPeers, tableToPeers, "")
	}
	if len(p.ToPods) > 0 {
		rule(ruleToPods, tableToPods, k.cfg.Tunnel)
	}
	return rules(want)
}

func rules(want []*netlink.Rule) error {
	have, err := netlink.RuleList(unix.AF_INET)
	if err != nil {
		return fmt.Errorf("list routing rules: %w", err)
	}
	same := func(h netlink.Rule, w *netlink.Rule) bool {
		return h.Protocol == w.Protocol && h.Priority == w.Priority && h.Table == w.Table && h.IifName == w.IifName
	}
	var errs []error
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h netlink.Rule) bool { return same(h, w) }) {
			if err := netlink.RuleAdd(w); err != nil && !errors.Is(err, unix.EEXIST) {
				errs = append(errs, fmt.Errorf("add routing rule %d: %w", w.Priority, err))
			}
		}
	}
	for _, h := range have {
		if h.Protocol == hostnet.NodesProtocol && !slices.ContainsFunc(want, func(w *netlink.Rule) bool { return same(h, w) }) {
			if err := netlink.RuleDel(&h); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove routing rule %d: %w", h.Priority, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Remove leaves nothing behind, of any process before, with the nftables tables of these names.
func (k *Kernel) Remove(tables ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plan = nil
	errs := []error{rules(nil)}
	if left, err := ours(); err != nil {
		errs = append(errs, err)
	} else {
		errs = append(errs, removeRoutes(left))
	}
	if link, err := netlink.LinkByName(Device); err == nil {
		errs = append(errs, netlink.LinkDel(link))
	}
	return errors.Join(append(errs, removeTables(append(tables, Table)))...)
}

func removeTables(names []string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	all, err := c.ListTables()
	if err != nil {
		return fmt.Errorf("list nftables tables: %w", err)
	}
	for _, t := range all {
		if slices.Contains(names, t.Name) {
			c.DelTable(t)
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove nftables tables: %w", err)
	}
	return nil
}
