package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kith.dev/core/hostnet"
)

// Peers' packets skip the default route: what is not a pod here must not travel on to the LAN or the internet.
// Between the rules that network plugins set and the main table.
const (
	ruleRoutes = 32764 // from the device: the main table, but not its default route
	ruleStop   = 32765 // from the device: nothing else
)

// host is the kernel's side of the device: address, settings, rules and routes.
type host struct {
	name  string
	index int
	addr  netip.Addr
	log   *slog.Logger
}

func newHost(cfg Config) (*host, error) {
	link, err := netlink.LinkByName(cfg.Device)
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", cfg.Device, err)
	}
	return &host{name: cfg.Device, index: link.Attrs().Index, addr: cfg.Address, log: cfg.Log}, nil
}

// up configures the device and removes what a killed predecessor left.
func (h *host) up() error {
	h.clean()
	// IPv6 would only bring router solicitations to drop.
	h.sysctl("net/ipv6/conf/"+h.name+"/disable_ipv6", "1")
	// Loose: the kernel takes the stricter of this and the setting for all, and strict may fail while routes change.
	h.sysctl("net/ipv4/conf/"+h.name+"/rp_filter", "2")
	h.sysctl("net/ipv4/conf/"+h.name+"/accept_redirects", "0")
	h.sysctl("net/ipv4/conf/"+h.name+"/send_redirects", "0")
	h.sysctl("net/ipv4/ip_forward", "1")
	h.sysctl("net/ipv4/conf/"+h.name+"/forwarding", "1")
	if err := h.syncAddress(); err != nil {
		return err
	}
	link, err := netlink.LinkByIndex(h.index)
	if err != nil {
		return fmt.Errorf("find device %s: %w", h.name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", h.name, err)
	}
	return h.syncRules()
}

func (h *host) syncAddress() error {
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: h.index, Name: h.name}}
	own := &netlink.Addr{IPNet: hostnet.IPNet(netip.PrefixFrom(h.addr, 32))}
	if err := netlink.AddrAdd(link, own); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("give %s the address %s: %w", h.name, h.addr, err)
	}
	return nil
}

// down leaves nothing behind. Routes over the device went with it.
func (h *host) down() { h.clean() }

func (h *host) clean() {
	if err := h.syncRoutes(nil); err != nil {
		h.log.Debug("old routes not removed", "err", err)
	}
	for _, r := range h.rules() {
		if err := netlink.RuleDel(r); err != nil && !errors.Is(err, unix.ENOENT) {
			h.log.Debug("old rule not removed", "err", err)
		}
	}
}

func (h *host) rules() []*netlink.Rule {
	routes, stop := netlink.NewRule(), netlink.NewRule()
	for _, r := range []*netlink.Rule{routes, stop} {
		r.Family, r.IifName, r.Protocol = unix.AF_INET, h.name, hostnet.Protocol
	}
	routes.Priority, routes.Table, routes.SuppressPrefixlen = ruleRoutes, unix.RT_TABLE_MAIN, 0
	stop.Priority, stop.Type = ruleStop, unix.FR_ACT_UNREACHABLE
	return []*netlink.Rule{routes, stop}
}

func (h *host) syncRules() error {
	for _, r := range h.rules() {
		if err := netlink.RuleAdd(r); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add routing rule %d for %s: %w", r.Priority, h.name, err)
		}
	}
	return nil
}

// syncRoutes makes our routes those wanted, and touches only what differs.
func (h *host) syncRoutes(want []netlink.Route) error {
	have, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{Protocol: hostnet.Protocol, Table: unix.RT_TABLE_MAIN},
		netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	var errs []error
	kept := map[string]bool{}
	for _, w := range want {
		kept[w.Dst.String()] = true
		if containsRoute(have, w) {
			continue
		}
		if err := netlink.RouteReplace(&w); err != nil {
			errs = append(errs, fmt.Errorf("route to %s: %w", w.Dst, err))
		}
	}
	for _, r := range have {
		if r.Dst == nil || kept[r.Dst.String()] {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove route to %s: %w", r.Dst, err))
		}
	}
	return errors.Join(errs...)
}

func containsRoute(have []netlink.Route, w netlink.Route) bool {
	for _, r := range have {
		if r.Dst != nil && r.Dst.String() == w.Dst.String() && r.LinkIndex == w.LinkIndex && r.MTU == w.MTU &&
			r.Gw.Equal(w.Gw) {
			return true
		}
	}
	return false
}

// routeTo leads a peer's alias into the device. A narrower path is told the kernel here, and it tells the pods.
func (h *host) routeTo(alias netip.Prefix, mtu, device int) netlink.Route {
	r := netlink.Route{
		Dst: hostnet.IPNet(alias), LinkIndex: h.index, Scope: netlink.SCOPE_LINK, Protocol: hostnet.Protocol,
		Table: unix.RT_TABLE_MAIN, Src: h.addr.AsSlice(),
	}
	if mtu < device {
		r.MTU = mtu
	}
	return r
}

// sysctl writes only what differs, for setting ip_forward resets others, and complains at most: a container may
// have it read-only and right.
func (h *host) sysctl(name, value string) {
	path := "/proc/sys/" + name
	if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == value {
		return
	} else if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		h.log.Warn("kernel setting not changed; pods may not reach peers", "setting", name, "value", value, "err", err)
	}
}
