package link

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/gateway"
	"kith.dev/core/netplan"
	"kith.dev/core/peering"
)

// choose finds an alias for each range of a peer, and remembers it, so that no other peer gets it meanwhile.
func (l *Linker) choose(ctx context.Context, peer *v1alpha1.Peer, ranges []peering.Range) ([]v1alpha1.RangeAlias, error) {
	l.choosing.Lock()
	defer l.choosing.Unlock()
	taken, err := l.cfg.Gateway.Taken(peer.Spec.ID)
	if err != nil {
		return nil, fmt.Errorf("see which addresses are in use here: %w", err)
	}
	taken = append(taken, l.ofOthers(ctx, peer)...)
	var list []v1alpha1.RangeAlias
	for _, r := range ranges {
		alias, err := l.alias(peer, r, taken)
		if err != nil {
			return nil, fmt.Errorf("find free addresses for the range %q (%s) of %s: %w", r.Name, r.Prefix, peer.Name, err)
		}
		list = append(list, v1alpha1.RangeAlias{Name: r.Name, Real: r.Prefix.String(), Alias: alias.String()})
		taken = append(taken, alias)
	}
	l.chosen[peer.Spec.ID] = list
	return list, nil
}

// alias keeps the one that was chosen before as long as it is free.
func (l *Linker) alias(peer *v1alpha1.Peer, r peering.Range, taken []netip.Prefix) (netip.Prefix, error) {
	before := l.chosen[peer.Spec.ID]
	if before == nil && peer.Status.Network != nil {
		before = peer.Status.Network.Theirs
	}
	for _, was := range before {
		alias, err := netip.ParsePrefix(was.Alias)
		if err == nil && was.Name == r.Name && was.Real == r.Prefix.String() && netplan.Free(alias, taken) {
			return alias, nil
		}
	}
	return netplan.ChooseAlias(r.Prefix, taken, l.cfg.Pool, peer.Spec.ID)
}

// ofOthers are the aliases that other peers hold, linked or not: they must find them free when they come back. Callers
// hold choosing.
func (l *Linker) ofOthers(ctx context.Context, peer *v1alpha1.Peer) []netip.Prefix {
	var taken []netip.Prefix
	for id, list := range l.chosen {
		if id != peer.Spec.ID {
			taken = append(taken, (&v1alpha1.NetworkStatus{Theirs: list}).Aliases()...)
		}
	}
	var list v1alpha1.PeerList
	if l.client.List(ctx, &list) != nil {
		return taken
	}
	for _, other := range list.Items {
		if other.Name != peer.Name {
			taken = append(taken, other.Status.Network.Aliases()...)
		}
	}
	return taken
}

// Overlapped reports whether an alias of the peer is in use for something else here, and has to be chosen anew.
func (l *Linker) Overlapped(peer *v1alpha1.Peer) bool {
	taken, err := l.cfg.Gateway.Taken(peer.Spec.ID)
	if err != nil || peer.Status.Network == nil {
		return false
	}
	return slices.ContainsFunc(peer.Status.Network.Aliases(), func(alias netip.Prefix) bool { return !netplan.Free(alias, taken) })
}

// names wants the ranges that contracts here are about, each once and no other, of a length a cluster has; and aliases for
// those of this cluster, or none yet.
func (l *Linker) names(theirs peering.Link) error {
	if err := l.exactly("ranges", theirs.Ranges); err != nil {
		return err
	}
	for _, r := range theirs.Ranges {
		if err := netplan.CheckRange(r.Prefix); err != nil {
			return fmt.Errorf("ranges: %s: %w", r.Name, err)
		}
	}
	if len(theirs.Aliases) == 0 {
		return nil
	}
	return l.exactly("aliases", theirs.Aliases)
}

func (l *Linker) exactly(what string, list []peering.Range) error {
	for _, r := range list {
		if _, ok := l.cfg.Ranges[r.Name]; !ok {
			return fmt.Errorf("%s: there is no range %q in a link with this cluster, only %s", what, r.Name, l.rangeNames())
		}
	}
	if len(list) != len(l.cfg.Ranges) { // none is there twice, peering saw to that
		return fmt.Errorf("%s: want all of %s", what, l.rangeNames())
	}
	return nil
}

func (l *Linker) rangeNames() string {
	return strings.Join(slices.Sorted(maps.Keys(l.cfg.Ranges)), ", ")
}

// admit asks of what was kept what names and Validate ask of what is said.
func (l *Linker) admit(g gateway.Peer) error {
	for what, list := range map[string][]netplan.Mapping{"its ranges": g.Theirs, "the aliases it chose": g.Ours} {
		if len(list) != len(l.cfg.Ranges) {
			return fmt.Errorf("%s: want all of %s and no other", what, l.rangeNames())
		}
		for _, m := range list {
			if _, ok := l.cfg.Ranges[m.Name]; !ok {
				return fmt.Errorf("%s: there is no range %q in a link with this cluster", what, m.Name)
			}
		}
	}
	for _, m := range g.Ours {
		if m.Real != l.cfg.Ranges[m.Name] {
			return fmt.Errorf("the range %q of this cluster was %s, is %s", m.Name, m.Real, l.cfg.Ranges[m.Name])
		}
	}
	return g.Validate()
}
