package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"kith.dev/core/net/netplan"
)

// keepalive keeps NAT mappings alive and lets both sides notice a restarted peer.
const keepalive = 25 * time.Second

// Peer is another cluster as the gateway needs to know it.
type Peer struct {
	ID        string
	Name      string // for people; the log
	PublicKey Key
	// Endpoint is where its WireGuard listens; the zero value waits for the peer to come. Once the peer was heard
	// from elsewhere, that is where packets go, until Endpoint is set to something new. A link-local address has the zone that it has
	// on this host: the name of an interface.
	Endpoint netip.AddrPort
	netplan.Pair
	Direct []Direct // other providers to which it introduced this one, as its guests' home
}

// echoWay is that of an ICMP echo which shows whether packets pass: the addresses that it is sent from and to.
type echoWay struct{ from, to netip.Addr }

// ways are by the guests of each side at the other, ours there first; none without guests. Ranges are agreed on for both directions, and the
// fences of both sides let pass what there is a contract for: one of the two ways.
func (p Peer) ways(self netip.Addr) (list []echoWay) {
	if p.There.IsValid() {
		list = append(list, echoWay{self, p.AtThere})
	}
	if p.Here.IsValid() && !p.Guests.Real.IsValid() {
		return append(list, echoWay{netplan.GuestGateway(p.Here), p.AtHome})
	}
	for _, m := range p.Aliases {
		if to, ok := m.ToAlias(p.AtHome); ok {
			return append(list, echoWay{self, to})
		}
	}
	return list
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
	if a := p.Endpoint.Addr(); a.Is6() && a.IsLinkLocalUnicast() != (a.Zone() != "") {
		errs = append(errs, fmt.Errorf("endpoint %s: a link-local address has the interface behind which it is, and no other has", p.Endpoint))
	}
	errs = append(errs, p.validateDirect()...)
	return errors.Join(append(errs, p.Pair.Validate())...)
}

// ErrKeyTaken is wrapped by SetPeer's error when another peer has the WireGuard key already: packets are told apart by it.
var ErrKeyTaken = errors.New("its WireGuard key is that of another peer")

// conflicts tells what of p is already another peer's.
func (p Peer) conflicts(q Peer) error {
	if p.PublicKey == q.PublicKey {
		return fmt.Errorf("%w, %s", ErrKeyTaken, q.ID)
	}
	for _, a := range p.Ranges() {
		if i := slices.IndexFunc(q.Ranges(), a.Overlaps); i >= 0 {
			return fmt.Errorf("%s overlaps %s of peer %s", a, q.Ranges()[i], q.ID)
		}
	}
	return nil
}
