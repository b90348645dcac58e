package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"kith.dev/core/netplan"
)

// keepalive keeps NAT mappings alive and lets both sides notice a restarted peer.
const keepalive = 25 * time.Second

// Peer is another cluster as the gateway needs to know it.
type Peer struct {
	ID        string
	Name      string // for people; the log
	PublicKey Key
	// Endpoint is where its WireGuard listens; the zero value waits for the peer to come. Once the peer was heard
	// from elsewhere, that is where packets go, until Endpoint is set to something new.
	Endpoint netip.AddrPort
	netplan.Pair
}

// gateway is the peer's own address on its tunnel device as it is seen here: every cluster's follows from its pods' range.
func (p Peer) gateway() (netip.Addr, bool) {
	for _, m := range p.Theirs {
		if m.Name == "pods" {
			return m.ToAlias(netplan.Cluster{Pods: m.Real}.Gateway())
		}
	}
	return netip.Addr{}, false
}

// Validate checks what can be checked without knowing the other peers. Most of it was said by the peer.
func (p Peer) Validate() error {
	var errs []error
	if p.ID == "" {
		errs = append(errs, errors.New("no ID"))
	}
	if p.PublicKey.IsZero() {
		errs = append(errs, errors.New("no WireGuard key"))
	}
	if e := p.Endpoint; e.IsValid() && (e.Port() == 0 || e.Addr().IsUnspecified() || e.Addr().IsMulticast()) {
		errs = append(errs, fmt.Errorf("%s is no endpoint", e))
	}
	if a := p.Endpoint.Addr(); a.Is6() && a.IsLinkLocalUnicast() {
		errs = append(errs, fmt.Errorf("endpoint %s is link-local, which WireGuard's socket cannot reach", p.Endpoint))
	}
	return errors.Join(append(errs, p.Pair.Validate())...)
}

// ErrKeyTaken is wrapped by SetPeer's error when another peer has the WireGuard key already: packets are told apart by it.
var ErrKeyTaken = errors.New("its WireGuard key is that of another peer")

// conflicts tells which alias of p is already another peer's.
func (p Peer) conflicts(q Peer) error {
	if p.PublicKey == q.PublicKey {
		return fmt.Errorf("%w, %s", ErrKeyTaken, q.ID)
	}
	for _, a := range p.Theirs {
		for _, b := range q.Theirs {
			if a.Alias.Overlaps(b.Alias) {
				return fmt.Errorf("alias %s of its %s overlaps %s of peer %s", a.Alias, a.Name, b.Alias, q.ID)
			}
		}
	}
	return nil
}
