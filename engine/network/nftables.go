package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"kith.dev/core/net/netplan"
)

// Table is the engine's nftables table.
const Table = "kith-engine"

// nodePorts is upstream's range of them.
const nodePorts = "30000-32767"

// rules writes the engine's table, in one transaction, so that no packet sees it missing. onLAN says that the node's address is one that the
// machine has anyway.
func rules(ctx context.Context, o Options, onLAN bool) error {
	if err := rules6(ctx, o); err != nil {
		return fmt.Errorf("IPv6: %w", err)
	}
	nft, err := knftables.New(knftables.IPv4Family, Table)
	if err != nil {
		return err
	}
	known, err := nft.ListElements(ctx, "set", others)
	if err != nil && !knftables.IsNotFound(err) {
		return err
	}
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{}) // so that Delete finds it
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("pods of kith-k8s")})
	if o.Flannel.IsValid() {
		tx.Add(&knftables.Chain{Name: "postrouting", Type: knftables.PtrTo(knftables.NATType), Hook: knftables.PtrTo(knftables.PostroutingHook), Priority: knftables.PtrTo(knftables.SNATPriority)})
		tx.Add(&knftables.Rule{Chain: "postrouting", Rule: knftables.Concat("ip saddr", o.Flannel, "ip daddr !=", o.Flannel, "ip daddr != 224.0.0.0/4", "masquerade")})
		return nft.Run(ctx, tx)
	}
	// Linux answers for an address of any of its devices on all of them, and we forward: a neighbour on the
	// LAN with a route to us would reach API server, kubelet, pods and services. Before any translation such
	// packets name our ranges; what was translated or asked for names the laptop's own address, and passes.
	// A LAN that happens to have one of our ranges is spared by the question whether the address is local.
	base(tx, "strangers", knftables.FilterType, knftables.PreroutingHook, knftables.RawPriority)
	hidden := "" // from masquerading: other nodes are like this one
	if o.Cluster {
		tx.Add(&knftables.Set{Name: others, Type: "ipv4_addr", Flags: []knftables.SetFlag{knftables.IntervalFlag}, Comment: knftables.PtrTo("other nodes and their pods")})
		for _, e := range known { // until Others says it anew
			tx.Add(e)
		}
		hidden = "ip daddr != @" + others
		// Who says to be another node must come over the device that leads to it. On a LAN more cannot be asked of a packet.
		tx.Add(&knftables.Rule{Chain: "strangers", Rule: "ip saddr @" + others + " fib saddr . iif oif exists accept"})
	}
	if onLAN { // its other services are the machine's owner's, who decides about them
		tx.Add(&knftables.Rule{Chain: "strangers", Rule: knftables.Concat(stranger, "ip daddr", o.NodeIP, "meta l4proto { tcp, udp } th dport", o.DNSPort, "drop")})
	} else {
		tx.Add(&knftables.Rule{Chain: "strangers", Rule: knftables.Concat(stranger, "ip daddr", o.NodeIP, "drop")})
	}
	tx.Add(&knftables.Rule{Chain: "strangers", Rule: knftables.Concat(
		stranger, fmt.Sprintf("ip daddr { %s, %s }", o.PodCIDR, o.ServiceCIDR), "fib daddr type != local", "drop")})

	far(tx)
	hide(tx, "ip saddr "+o.PodCIDR.String(), hidden)
	return nft.Run(ctx, tx)
}

// rules6 writes the engine's table for IPv6, or removes it where there is none. A cluster that has IPv6 has one node, with an address on a device of
// its own.
func rules6(ctx context.Context, o Options) error {
	nft, err := knftables.New(knftables.IPv6Family, Table)
	if err != nil {
		if o.hasIPv6() {
			return err
		}
		return nil // a kernel without it has no table, either
	}
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	if !o.hasIPv6() {
		return nft.Run(ctx, tx)
	}
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("pods of kith-k8s")})
	base(tx, "strangers", knftables.FilterType, knftables.PreroutingHook, knftables.RawPriority)
	tx.Add(&knftables.Rule{Chain: "strangers", Rule: knftables.Concat(stranger, "ip6 daddr", o.IPv6.Node(), "drop")})
	tx.Add(&knftables.Rule{Chain: "strangers", Rule: knftables.Concat(
		stranger, fmt.Sprintf("ip6 daddr { %s, %s }", o.IPv6.NodePods(), o.IPv6.Services), "fib daddr type != local", "drop")})
	far(tx)
	hide(tx, "ip6 saddr "+o.IPv6.NodePods().String(), "")
	return nft.Run(ctx, tx)
}

var (
	own      = fmt.Sprintf(`{ %q, "lo", %q, %q, %q }`, netplan.Bridge, netplan.Node, netplan.Tunnel, netplan.Overlay)
	guests   = fmt.Sprintf("%#x", GuestGroup)
	stranger = "iifname != " + own + " meta iifgroup != " + guests
)

func base(tx *knftables.Transaction, name string, of knftables.BaseChainType, hook knftables.BaseChainHook, priority knftables.BaseChainPriority) {
	tx.Add(&knftables.Chain{Name: name, Type: &of, Hook: &hook, Priority: &priority})
}

// far keeps who is not on the LAN off node ports, and everybody off guests.
func far(tx *knftables.Transaction) {
	// Where node ports are open, they are so to neighbours on a LAN. What comes from a VPN or a modem (no Ethernet) is from
	// elsewhere. Only what kube-proxy sent on to a pod is judged, by the port that was asked for; other programs of the laptop
	// that listen in that range are none of ours. A pod's hostPort in that range is.
	base(tx, "far", knftables.FilterType, knftables.ForwardHook, knftables.FilterPriority)
	asked := stranger + " meta iiftype != ether ct direction original ct status dnat meta l4proto { tcp, udp, sctp } ct original proto-dst " + nodePorts
	tx.Add(&knftables.Rule{Chain: "far", Rule: knftables.Concat(asked, "oifname", own, "drop")})
	tx.Add(&knftables.Rule{Chain: "far", Rule: knftables.Concat(asked, "meta oifgroup", guests, "drop")})
	// Ranges of guests come and go; that a packet is for one shows by the link it leaves by.
	tx.Add(&knftables.Rule{Chain: "far", Rule: knftables.Concat(stranger, "meta oifgroup", guests, "ct direction original ct status ! dnat drop")})

}

// hide has pods be asked and answered where nobody knows their addresses; but is from whom else they are not hidden.
func hide(tx *knftables.Transaction, pods, but string) {
	base(tx, "postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority)
	// Pods are hidden behind the laptop's address where nobody could answer them otherwise: everywhere except
	// on this node and behind the gateway, whose peers know the pods' own addresses.
	for _, from := range []string{pods, "meta iifgroup " + guests} {
		tx.Add(&knftables.Rule{Chain: "postrouting", Rule: knftables.Concat(from, "oifname !=", own, "meta oifgroup !=", guests, but, "masquerade")})
	}
	// This host asks for a service by the address it has on the LAN, where the route to services' addresses leads; a peer that is asked
	// in the end would not know that address, and it may be another laptop's there. Where a pod here is asked it does no harm.
	for _, way := range []string{"oifname " + own, "meta oifgroup " + guests} {
		tx.Add(&knftables.Rule{Chain: "postrouting", Rule: knftables.Concat(way, `oifname != "lo" ct status dnat fib saddr type local masquerade`)})
	}
}

// others is the set of addresses of other nodes and their pods.
const others = "nodes"

// Others says from which ranges other nodes of this cluster, and their pods, speak. It is for a network that was set up as a Cluster's.
func Others(ctx context.Context, from []netip.Prefix) error {
	nft, err := knftables.New(knftables.IPv4Family, Table)
	if err != nil {
		return err
	}
	tx := nft.NewTransaction()
	tx.Flush(&knftables.Set{Name: others})
	for _, p := range merged(from) {
		tx.Add(&knftables.Element{Set: others, Key: []string{p.String()}})
	}
	return nft.Run(ctx, tx)
}

// merged leaves out ranges that lie in others, which a set of intervals does not take.
func merged(ranges []netip.Prefix) (list []netip.Prefix) {
	for i, p := range ranges {
		if !slices.ContainsFunc(ranges[:i], func(q netip.Prefix) bool { return q == p }) &&
			!slices.ContainsFunc(ranges, func(q netip.Prefix) bool { return q != p && q.Overlaps(p) && q.Bits() < p.Bits() }) {
			list = append(list, p)
		}
	}
	return list
}

// allowForwarding lets packets of pods, guests and peers through a FORWARD chain whose policy is to drop, as Docker and some
// firewalls set it. An accept in a table of our own would not do: a drop in any table wins. It is the one
// place where the engine writes into a chain of others; it does so only when the policy is DROP.
func allowForwarding(ctx context.Context, program string) error {
	if _, err := exec.LookPath(program); err != nil {
		return nil // no iptables, no such chain
	}
	out, err := exec.CommandContext(ctx, program, "-w", "5", "-S", "FORWARD").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s -S FORWARD: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	if !strings.Contains(string(out), "-P FORWARD DROP") {
		return nil
	}
	// Guests, too, and what this laptop as a home forwards between its peers; the fence judges both.
	group := fmt.Sprintf("%#x", GuestGroup)
	var errs []error
	for _, through := range [][]string{
		{"-i", netplan.Bridge}, {"-o", netplan.Bridge}, {"-i", netplan.Tunnel}, {"-o", netplan.Tunnel},
		{"-m", "devgroup", "--src-group", group}, {"-m", "devgroup", "--dst-group", group},
	} {
		rule := slices.Concat([]string{"FORWARD"}, through, []string{"-m", "comment", "--comment", "kith-engine", "-j", "ACCEPT"})
		if exec.CommandContext(ctx, program, append([]string{"-w", "5", "-C"}, rule...)...).Run() == nil {
			continue
		}
		out, err := exec.CommandContext(ctx, program, append([]string{"-w", "5", "-I"}, rule...)...).CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s -I FORWARD %s: %w: %s", program, strings.Join(through, " "), err, strings.TrimSpace(string(out))))
		}
	}
	return errors.Join(errs...)
}
