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
	if g.Theirs, err = v1alpha1.Mappings(network.Theirs); err != nil {
		return gateway.Peer{}, fmt.Errorf("the ranges of %s: %w", peer.Name, err)
	}
	if g.Ours, err = v1alpha1.Mappings(network.Ours); err != nil {
		return gateway.Peer{}, fmt.Errorf("the aliases %s chose: %w", peer.Name, err)
	}
	return g, nil
}
