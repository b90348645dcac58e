package link

import (
	"fmt"
	"net/netip"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/gateway"
)

// gatewayPeer is a Peer's network as the gateway takes it.
func gatewayPeer(peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus) (gateway.Peer, error) {
	key, err := gateway.ParseKey(network.PublicKey)
	if err != nil {
		return gateway.Peer{}, fmt.Errorf("the WireGuard key of %s: %w", peer.Name, err)
	}
	g := gateway.Peer{ID: peer.Spec.ID, Name: peer.Name, PublicKey: key}
	if network.Endpoint != "" {
		if g.Endpoint, err = netip.ParseAddrPort(network.Endpoint); err != nil {
			return gateway.Peer{}, fmt.Errorf("the WireGuard endpoint of %s: %w", peer.Name, err)
		}
	}
	if g.Theirs, err = mappings(network.Theirs); err != nil {
		return gateway.Peer{}, fmt.Errorf("the ranges of %s: %w", peer.Name, err)
	}
	if g.Ours, err = mappings(network.Ours); err != nil {
		return gateway.Peer{}, fmt.Errorf("the aliases %s chose: %w", peer.Name, err)
	}
	return g, nil
}

func mappings(ranges []v1alpha1.RangeAlias) ([]gateway.Mapping, error) {
	var list []gateway.Mapping
	for _, r := range ranges {
		real, err := netip.ParsePrefix(r.Real)
		if err != nil {
			return nil, err
		}
		alias, err := netip.ParsePrefix(r.Alias)
		if err != nil {
			return nil, err
		}
		list = append(list, gateway.Mapping{Name: r.Name, Real: real, Alias: alias})
	}
	return list, nil
}

// Translator maps addresses as the peer uses them to those that reach it from here.
func Translator(peer *v1alpha1.Peer) func(netip.Addr) (netip.Addr, bool) {
	if peer.Status.Network == nil {
		return func(netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }
	}
	theirs, err := mappings(peer.Status.Network.Theirs)
	if err != nil {
		return func(netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }
	}
	return gateway.Peer{Theirs: theirs}.Translate
}
