package noderoute

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// Tenant is a home whose guests live here in its address space: what they send is read as home would read it. From is their
// range, a /24, and From6 that of IPv6, if they have one; To leads to their home, by both families.
type Tenant struct {
	From, From6 netip.Prefix
	To          []Route
}

// ranges that its guests have.
func (t Tenant) ranges() []netip.Prefix {
	if !t.From6.IsValid() {
		return []netip.Prefix{t.From}
	}
	return []netip.Prefix{t.From, t.From6}
}

// ofIPv4 is the tenant where the device has no IPv6.
func (t Tenant) ofIPv4() Tenant {
	t.From6 = netip.Prefix{}
	t.To = slices.DeleteFunc(slices.Clone(t.To), func(r Route) bool { return r.To.Addr().Is6() })
	return t
}

// podTable is the table of routes for this cluster's own pods alone (Route.Pods): no tenant has it (Tenant.table).
const podTable = 0x6b << 24

// Mark is on packets whose answers, or which themselves, are for this host or its own pods although a guest sends them: what a guest asks of
// the cluster's DNS, and its answers to the owner's pods. MarkMask is the bit it consists of.
const (
	Mark     = 0x10000000
	MarkMask = 0x10000000
)

// Rules, by their priority. The kernel asks its table of local addresses first of all, and this node has the addresses that a home's
// node has. With tenants the rule for that table is therefore moved behind theirs, as for VRF devices (Documentation/networking/vrf.rst).
// Others move it too; then it is left where it is.
const (
	ruleMarkedLocal  = 50 // marked: to this host,
	ruleMarked       = 51 // or what is here
	rulePods         = 52 // from this cluster's own pods, or from the device: to guests elsewhere whose addresses the host has another use for
	ruleTunnelLocal  = 54 // from the device: to this host,
	ruleTunnel       = 55 // or what is here, but not by a default route
	ruleTunnelStop   = 56 // and nowhere else
	ruleTenants      = 60
	ruleLocal        = 100
	ruleTunnelLate   = 32764 // without tenants, behind the rules that network plugins set: the same as ruleTunnel
	ruleTunnelStopAt = 32765 // and ruleTunnelStop
)

// table of a tenant's routes, of both families: no two ranges of that length have the same.
func (t Tenant) table() int { return 0x6b<<24 | int(netplan.Number(t.From.Addr())>>8) }

// tenantRoutes lead what tenants' homes have into the device. Among guests of one home the way is the usual one.
func (h *Node) tenantRoutes(tenants []Tenant) (list []netlink.Route) {
	for _, t := range tenants {
		for _, to := range t.To {
			list = append(list, h.into(to, t.table()))
		}
		for _, from := range t.ranges() {
			list = append(list, netlink.Route{Dst: hostnet.IPNet(from), Table: t.table(), Type: unix.RTN_THROW, Protocol: hostnet.Protocol})
		}
	}
	return list
}

// syncAddresses gives the device its own addresses and, in each range of guests, that of the host.
func (h *Node) syncAddresses(tenants []Tenant) error {
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: h.Index, Name: h.name}}
	want := []netip.Addr{h.addr}
	if h.six.IsValid() {
		want = append(want, h.six)
	}
	own := len(want)
	for _, t := range tenants {
		for _, from := range t.ranges() {
			want = append(want, netplan.GuestGateway(from))
		}
	}
	var errs []error
	for _, a := range want {
		if err := netlink.AddrAdd(link, hostAddress(a)); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("give %s the address %s: %w", h.name, a, err))
		}
	}
	for _, a := range h.gateways {
		if slices.Contains(want, a) {
			continue
		}
		if err := netlink.AddrDel(link, hostAddress(a)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("take the address %s from %s: %w", a, h.name, err))
		}
	}
	h.gateways = want[own:]
	return errors.Join(errs...)
}

func hostAddress(a netip.Addr) *netlink.Addr {
	is := &netlink.Addr{IPNet: hostnet.IPNet(netip.PrefixFrom(a, a.BitLen()))}
	if a.Is6() {
		is.Flags = unix.IFA_F_NODAD // there is nobody to ask, and until then it would be of no use
	}
	return is
}

// rules that are wanted. Peers' packets skip the default route: what is not a pod here must not travel on to the LAN or the internet. And they
// skip the tenants' tables: a peer's guests elsewhere may have the addresses of a tenant's here.
func (h *Node) rules(family int, tenants []Tenant, pods []netip.Prefix) (list []*netlink.Rule) {
	rule := func(priority, table int) *netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Protocol, r.Priority, r.Table = family, hostnet.Protocol, priority, table
		list = append(list, r)
		return r
	}
	tunnel := func(priority int) {
		routes, stop := rule(priority, unix.RT_TABLE_MAIN), rule(priority+1, 0)
		routes.IifName, routes.SuppressPrefixlen = h.name, 0
		stop.IifName, stop.Type = h.name, unix.FR_ACT_UNREACHABLE
	}
	for _, p := range pods {
		if familyOf(p.Addr()) == family {
			rule(rulePods, podTable).Src = hostnet.IPNet(p)
			rule(rulePods, podTable).IifName = h.name
		}
	}
	type from struct {
		guests netip.Prefix
		table  int
	}
	var guests []from
	for _, t := range tenants {
		for _, p := range t.ranges() {
			if familyOf(p.Addr()) == family {
				guests = append(guests, from{p, t.table()})
			}
		}
	}
	if len(guests) == 0 {
		tunnel(ruleTunnelLate)
		return list
	}
	for _, r := range []*netlink.Rule{rule(ruleMarkedLocal, unix.RT_TABLE_LOCAL), rule(ruleMarked, unix.RT_TABLE_MAIN)} {
		mask := uint32(MarkMask)
		r.Mark, r.Mask = Mark, &mask
	}
	rule(ruleTunnelLocal, unix.RT_TABLE_LOCAL).IifName = h.name
	tunnel(ruleTunnel)
	for _, f := range guests {
		rule(ruleTenants, f.table).Src = hostnet.IPNet(f.guests)
	}
	rule(ruleLocal, unix.RT_TABLE_LOCAL)
	return list
}

// syncRules makes our rules those wanted, of each family that the device has.
func (h *Node) syncRules(tenants []Tenant, pods []netip.Prefix) error {
	var errs []error
	for _, family := range h.families() {
		errs = append(errs, syncRules(family, h.rules(family, tenants, pods)))
	}
	return errors.Join(errs...)
}

// syncRules makes our rules of a family those wanted. There is a rule for the local table at every moment: where none of ours is to be there, and none
// of others is, the kernel's own is put back first; where one is, that is removed last.
func syncRules(family int, want []*netlink.Rule) error {
	have, err := netlink.RuleList(family)
	if err != nil {
		return fmt.Errorf("list routing rules: %w", err)
	}
	first := slices.ContainsFunc(have, func(r netlink.Rule) bool { return isLocal(r) && r.Priority == 0 })
	moved := slices.ContainsFunc(want, func(r *netlink.Rule) bool { return isLocal(*r) })
	local := netlink.NewRule()
	local.Family, local.Table, local.Priority = family, unix.RT_TABLE_LOCAL, 0
	if !moved && !slices.ContainsFunc(have, func(r netlink.Rule) bool { return isLocal(r) && r.Protocol != hostnet.Protocol }) {
		if err := netlink.RuleAdd(local); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("put the routing rule for local addresses back: %w", err)
		}
	}
	var errs []error
	for _, w := range want {
		if slices.ContainsFunc(have, func(r netlink.Rule) bool { return sameRule(&r, w) }) {
			continue
		}
		if err := netlink.RuleAdd(w); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("add routing rule %d: %w", w.Priority, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	remove := func(r *netlink.Rule) {
		if err := netlink.RuleDel(r); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove routing rule %d: %w", r.Priority, err))
		}
	}
	for i := range have {
		r := &have[i]
		if r.Protocol == hostnet.Protocol && !slices.ContainsFunc(want, func(w *netlink.Rule) bool { return sameRule(r, w) }) {
			remove(r)
		}
	}
	if moved && first {
		remove(local)
	}
	return errors.Join(errs...)
}

// isLocal recognises the rule for the table of local addresses.
func isLocal(r netlink.Rule) bool {
	return r.Table == unix.RT_TABLE_LOCAL && r.IifName == "" && r.OifName == "" && r.Src == nil && r.Dst == nil && r.Mark == 0
}

func sameRule(r, w *netlink.Rule) bool {
	return r.Protocol == hostnet.Protocol && r.Priority == w.Priority && (r.Table == w.Table || w.Table == 0) && r.IifName == w.IifName && r.Mark == w.Mark &&
		hostnet.Prefix(r.Src) == hostnet.Prefix(w.Src)
}
