package link

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/identity"
)

// Relay has guests of the peer go on to these providers of this cluster, by their IDs, and to no others: each gets a part of the range for the peer's guests
// here, whose addresses are the same at the peer, here and there. Nothing is asked of the peer. The providers hear of it when the link with them
// is proposed (Space).
func (l *Linker) Relay(ctx context.Context, peer *v1alpha1.Peer, providers []string) error {
	if !relaysOthers(peer, providers) {
		return nil
	}
	p := l.plan(peer)
	p.turn.Lock()
	defer p.turn.Unlock()
	now := l.client.Now().Peer(peer.Spec.ID).DeepCopy() // and not what was before this turn
	if now == nil || now.Status.Network == nil || !relaysOthers(now, providers) {
		return nil
	}
	network := now.Status.Network.DeepCopy()
	var err error
	if network.Relayed, err = l.parts(ctx, now, providers); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(network, now.Status.Network) {
		return nil
	}
	g, err := l.gatewayPeer(now, network)
	if err == nil {
		err = l.tell(now, g)
	}
	if err == nil {
		err = l.write(ctx, now, network)
	}
	if err != nil {
		return fmt.Errorf("have guests of %s go on: %w", peer.Name, err)
	}
	return nil
}

// relaysOthers reports whether guests of the peer go on to others than these, as far as they can at all.
func relaysOthers(peer *v1alpha1.Peer, providers []string) bool {
	n := peer.Status.Network
	if n == nil || n.GuestsHere == "" {
		return false
	}
	var has []string
	for _, r := range n.Relayed {
		has = append(has, r.ID)
	}
	return !slices.Equal(slices.Sorted(slices.Values(has)), slices.Sorted(slices.Values(providers)))
}

// parts gives each provider one: that which it has, or one that is free, of which no guest has an address. To one to which as many homes go already as it
// hears of none more goes. One from which nothing is offered on any more keeps its part while such guests are there.
func (l *Linker) parts(ctx context.Context, peer *v1alpha1.Peer, providers []string) (list []v1alpha1.RelayedRange, err error) {
	here, err := netip.ParsePrefix(peer.Status.Network.GuestsHere)
	if err != nil || !l.cfg.Links || here.Bits() != netplan.GuestBits { // a network plugin's guests have its addresses, which mean nothing elsewhere
		return nil, err
	}
	taken := map[string]bool{}
	for _, r := range peer.Status.Network.Relayed {
		keeps := slices.Contains(providers, r.ID)
		if provider := l.client.Now().Peer(r.ID); !keeps && provider != nil {
			if keeps, err = l.cfg.WentOn(ctx, peer, provider.Name); err != nil {
				return nil, err
			}
		}
		if keeps {
			list, taken[r.Guests] = append(list, r), true
		}
	}
	used, err := l.cfg.Addresses(ctx, peer)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(slices.Values(providers)) {
		if slices.ContainsFunc(list, func(r v1alpha1.RelayedRange) bool { return r.ID == id }) || l.homesAt(id, peer) >= netplan.MaxOnward {
			continue
		}
		for i := range netplan.MaxRelayed {
			part := netplan.RelayedPart(here, i)
			if !taken[part.String()] && !slices.ContainsFunc(used, part.Contains) {
				list, taken[part.String()] = append(list, v1alpha1.RelayedRange{ID: id, Guests: part.String()}), true
				break
			}
		}
	}
	return list, nil
}

// stillRelayed is what goes on when the link is settled anew: nothing if the range is another now. Who has guests go on does so again.
func stillRelayed(was *v1alpha1.NetworkStatus, here netip.Prefix) []v1alpha1.RelayedRange {
	if was == nil || was.GuestsHere != text(here) {
		return nil
	}
	return was.Relayed
}

// homesAt is how many homes but this one have guests go on to a provider.
func (l *Linker) homesAt(provider string, but *v1alpha1.Peer) (n int) {
	for _, home := range l.client.Now().Peers {
		if home.Spec.ID != but.Spec.ID && home.Status.Network != nil && slices.ContainsFunc(home.Status.Network.Relayed, func(r v1alpha1.RelayedRange) bool { return r.ID == provider }) {
			n++
		}
	}
	return n
}

// onward are the homes whose guests go on to a provider of this cluster, as it hears of them: if they are more than it takes, always the same.
func (l *Linker) onward(provider *v1alpha1.Peer) (list []peering.Onward) {
	for _, home := range l.client.Now().Peers {
		pair, err := home.Status.Network.Pair(netip.Prefix{})
		id, wrong := identity.ParseID(home.Spec.ID)
		if err != nil || wrong != nil {
			continue
		}
		for _, r := range pair.Relayed {
			if r.ID == provider.Spec.ID {
				list = append(list, peering.Onward{ID: id, Network: pair.Here, Guests: r.Guests, Space: pair.Space[:min(len(pair.Space), netplan.MaxOnwardSpace)], Services: pair.Services})
			}
		}
	}
	slices.SortFunc(list, func(a, b peering.Onward) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return list[:min(len(list), netplan.MaxOnward)]
}

// homes are those of what a consumer says of homes that its contract lets it have here, and whose addresses are free; and those of which guests have
// addresses.
func (l *Linker) homes(ctx context.Context, peer *v1alpha1.Peer, said []peering.Onward, ours peering.Link) (list []v1alpha1.OnwardHome, err error) {
	if list, err = l.heldHomes(ctx, peer); err != nil {
		return nil, err
	}
	if len(said) == 0 || !l.cfg.Links || !l.cfg.Provides ||
		!slices.ContainsFunc(l.client.Now().With(peer.Name, v1alpha1.RoleProvider), func(c *v1alpha1.Contract) bool { return c.DeletionTimestamp == nil && sharing.MayReoffer(c) }) {
		return list, nil
	}
	l.choosing.Lock()
	defer l.choosing.Unlock()
	taken, _, err := l.others(peer)
	if err != nil {
		return nil, err
	}
	taken = append(taken, ours.Here, ours.There)
	taken = append(taken, networksOf(&v1alpha1.NetworkStatus{Onward: list})...)
	if p := l.plans[peer.Spec.ID]; p != nil {
		taken = append(taken, aliasesOf(p.aliases)...)
	}
	for _, o := range said {
		home := v1alpha1.OnwardHome{ID: o.ID.String(), Network: o.Network.String(), Guests: o.Guests.String(), Services: text(o.Services)}
		for _, r := range o.Space {
			home.Space = append(home.Space, r.String())
		}
		if i := slices.IndexFunc(list, func(held v1alpha1.OnwardHome) bool { return held.ID == home.ID }); i >= 0 {
			if list[i].Network == home.Network && list[i].Guests == home.Guests { // else it is told anew when those guests have ended
				list[i] = home
			}
			continue
		}
		r := l.room
		r.taken = taken
		if o.ID == l.cfg.Identity.ID() || home.ID == peer.Spec.ID || netplan.CheckGuests(o.Network) != nil || !netplan.Within(o.Network, r.open(netplan.GuestBits)) || !netplan.Free(o.Network, taken) ||
			len(list) == netplan.MaxOnward {
			l.cfg.Log.Warn("pods that come by way of a peer have no place here: their addresses are in use for something else, or they are this cluster's own", "peer", peer.Name, "for", o.ID, "range", o.Network)
			continue
		}
		taken, list = append(taken, o.Network), append(list, home)
	}
	slices.SortFunc(list, func(a, b v1alpha1.OnwardHome) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// heldHomes are those of which guests here have addresses. They stay until the last of those has ended, whatever the peer says by now, and wherever this
// laptop came to: whoever got the range next would have their traffic.
func (l *Linker) heldHomes(ctx context.Context, peer *v1alpha1.Peer) (list []v1alpha1.OnwardHome, err error) {
	now := l.client.Now().Peer(peer.Spec.ID)
	if now == nil || now.Status.Network == nil || len(now.Status.Network.Onward) == 0 {
		return nil, nil
	}
	used, err := l.cfg.Addresses(ctx, now)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(now.Status.Network.Onward), func(home v1alpha1.OnwardHome) bool {
		part, err := netip.ParsePrefix(home.Guests)
		return err != nil || !slices.ContainsFunc(used, part.Contains)
	}), nil
}

// networksOf are the ranges of homes that come by way of a peer, beside which nothing else of that peer may lie.
func networksOf(n *v1alpha1.NetworkStatus) (list []netip.Prefix) {
	pair, _ := n.Pair(netip.Prefix{})
	for _, o := range pair.Onward {
		list = append(list, o.Network)
	}
	return list
}
