package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
)

// ErrNoRoom is wrapped by Share's error for pods that got no address.
var ErrNoRoom = errors.New("no address is left for them")

// Share has the peer reach these pods of this cluster, and no others, at those ports, under addresses that are returned by the pod's; Address of
// what is given is left alone. A pod keeps its address while it is shared. After an error that wraps ErrNoRoom those that have one are reached.
//
// The address is one of the range for the peer's guests here, which it has routed to this cluster anyway: nothing is asked of the peer. What it sends
// there has addresses of its own space, which may be this cluster's too; so each range of that space gets an alias, as where guests are translated.
func (l *Linker) Share(ctx context.Context, peerID string, pods []v1alpha1.SharedPod) (at map[netip.Addr]netip.Addr, err error) {
	known := l.client.Now().Peer(peerID)
	if known == nil {
		return nil, errNoContract
	}
	p := l.plan(known)
	p.turn.Lock()
	defer p.turn.Unlock()
	peer := l.client.Now().Peer(peerID).DeepCopy() // and not what was before this turn
	if peer == nil || !l.related(peer, v1alpha1.RoleProvider) {
		return nil, errNoContract
	}
	if l.mayLink(peer) != nil {
		return nil, l.mayLink(peer)
	}
	if !peer.Status.Network.Linked() || peer.Status.Network.GuestsHere == "" {
		return nil, fmt.Errorf("share pods with %s: there is no tunnel yet", peer.Name)
	}
	network := peer.Status.Network.DeepCopy()
	if network.Shared, at, err = l.addresses(ctx, peer, pods); err != nil && !errors.Is(err, ErrNoRoom) {
		return nil, err
	}
	if len(pods) > 0 && l.cfg.Links {
		if wrong := l.aliased(p, peer, network); wrong != nil {
			return nil, wrong
		}
	}
	if equality.Semantic.DeepEqual(network, peer.Status.Network) {
		return at, err
	}
	g, wrong := l.gatewayPeer(peer, network)
	if wrong == nil {
		wrong = l.tell(peer, g)
	}
	if wrong == nil {
		wrong = l.write(ctx, peer, network)
	}
	return at, errors.Join(err, wrong)
}

// addresses gives each pod one: that which it has, or a free one. Where guests are translated so are all pods, and nothing is chosen.
func (l *Linker) addresses(ctx context.Context, peer *v1alpha1.Peer, pods []v1alpha1.SharedPod) (list []v1alpha1.SharedPod, at map[netip.Addr]netip.Addr, err error) {
	here, err := netip.ParsePrefix(peer.Status.Network.GuestsHere)
	if err != nil {
		return nil, nil, err
	}
	taken := map[netip.Addr]bool{}
	had := map[string]netip.Addr{} // by the pod
	for _, s := range peer.Status.Network.Shared {
		if a, err := netip.ParseAddr(s.Address); err == nil && here.Contains(a) {
			had[s.Pod] = a
		}
	}
	for _, s := range pods {
		if a, kept := had[s.Pod]; kept {
			taken[a] = true
		}
	}
	if l.cfg.Links { // of an older Kith's guests some may have addresses that are for shared pods
		used, err := l.cfg.Addresses(ctx, peer)
		if err != nil {
			return nil, nil, err
		}
		for _, a := range used {
			taken[a] = true
		}
	}
	left := 0
	at = map[netip.Addr]netip.Addr{}
	for _, s := range pods {
		pod, err := netip.ParseAddr(s.Pod)
		if err != nil || !l.cfg.Network.Pods.Contains(pod) {
			return nil, nil, fmt.Errorf("%q is no address of a pod here", s.Pod)
		}
		a, kept := had[s.Pod]
		switch {
		case !l.cfg.Links:
			a, kept = netplan.Mapping{Real: l.cfg.Network.Pods, Alias: here}.ToAlias(pod)
		case !kept: // the first to be tried is where the pod's own would be: so it is the same after a while, if others left it free
			for try := range netplan.SharedAt(here, int(netplan.Number(pod)%netplan.MaxShared)) {
				if kept = !taken[try]; kept {
					a = try
					break
				}
			}
		}
		if !kept || len(list) == netplan.MaxShared {
			left++
			continue
		}
		taken[a], at[pod] = true, a
		list = append(list, v1alpha1.SharedPod{Address: a.String(), Pod: s.Pod, Ports: sorted(s.Ports)})
	}
	slices.SortFunc(list, func(a, b v1alpha1.SharedPod) int { return cmp.Compare(a.Address, b.Address) })
	if left > 0 {
		return list, at, fmt.Errorf("%d pods behind services for %s: %w, %d have one", left, peer.Name, ErrNoRoom, len(list))
	}
	return list, at, nil
}

func sorted(ports []v1alpha1.SharedPort) []v1alpha1.SharedPort {
	ports = slices.SortedFunc(slices.Values(ports), func(a, b v1alpha1.SharedPort) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	ports = slices.Compact(ports)
	return ports[:min(len(ports), mostPorts)]
}

// mostPorts of one pod are shared, as many as a Peer's status has room for.
const mostPorts = 256

// aliased has each range of the peer's address space have an alias here. The caller has the turn.
func (l *Linker) aliased(p *plan, peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus) error {
	pair, err := network.Pair(netip.Prefix{})
	if err != nil {
		return err
	}
	l.choosing.Lock()
	defer l.choosing.Unlock()
	taken, _, err := l.others(peer)
	if err != nil {
		return err
	}
	taken = slices.Concat(taken, pair.Space, networksOf(network), []netip.Prefix{pair.Here, pair.There})
	if err := l.chooseAliases(p, peer, pair.Space, taken, true); err != nil {
		return err
	}
	network.Aliases = rangeAliases(p.aliases)
	return nil
}

// chooseAliases gives each range of a peer's address space an alias that is free; one that it has stays, if that is held or free. The caller holds
// choosing, and has the turn.
func (l *Linker) chooseAliases(p *plan, peer *v1alpha1.Peer, space, taken []netip.Prefix, held bool) error {
	var chosen []netplan.Mapping
	for _, r := range space {
		a, err := alias(r, p.aliases, held, room{taken: slices.Concat(taken, aliasesOf(chosen)), pool: l.room.pool}, peer.Spec.ID)
		if err != nil {
			return err
		}
		chosen = append(chosen, netplan.Mapping{Name: r.String(), Real: r, Alias: a})
	}
	p.aliases = chosen
	return nil
}

func rangeAliases(list []netplan.Mapping) (out []v1alpha1.RangeAlias) {
	for _, m := range list {
		out = append(out, v1alpha1.RangeAlias{Name: m.Name, Real: m.Real.String(), Alias: m.Alias.String()})
	}
	return out
}

// shares reports whether the peer reaches pods of this cluster that are no guests: by what it said last, and by the policy.
func (l *Linker) shares(peer *v1alpha1.Peer) bool {
	return l.cfg.Provides && len(sharing.Services(sharing.Select(l.client.Now().Policies, peer))) > 0
}

// stillShared are the pods that are shared with a peer, when the link is settled anew: none of them if their range is another now. Who shares them
// is told by that, and shares them again.
func stillShared(was *v1alpha1.NetworkStatus, here netip.Prefix) []v1alpha1.SharedPod {
	if was == nil || was.GuestsHere != text(here) {
		return nil
	}
	return was.Shared
}
