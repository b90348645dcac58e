package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// DefaultKeepalive keeps NAT mappings alive and lets both sides notice a restarted peer.
const DefaultKeepalive = 25 * time.Second

// Peer is another cluster as the gateway needs to know it.
type Peer struct {
	ID        string
	Name      string // for people; the log
	PublicKey Key
	// Endpoint is where its WireGuard listens; the zero value waits for the peer to come. Once the peer was heard
	// from elsewhere, that is where packets go, until Endpoint is set to something new.
	Endpoint netip.AddrPort
	Theirs   []Mapping // its ranges: Real at home, Alias as routed here
	Ours     []Mapping // our ranges: Real here, Alias as routed there
	// Gateway is the peer's own address on its tunnel device, in its own terms; zero means the same as ours.
	Gateway   netip.Addr
	Keepalive time.Duration // zero means DefaultKeepalive
}

// Translate turns an address as the peer uses it into the one that reaches it from here. False: the address is in
// none of the peer's ranges and cannot be reached.
func (p Peer) Translate(a netip.Addr) (netip.Addr, bool) {
	for _, m := range p.Theirs {
		if out, ok := m.ToAlias(a); ok {
			return out, true
		}
	}
	return netip.Addr{}, false
}

// TranslateOurs turns an address of ours into the one by which the peer reaches it.
func (p Peer) TranslateOurs(a netip.Addr) (netip.Addr, bool) {
	for _, m := range p.Ours {
		if out, ok := m.ToAlias(a); ok {
			return out, true
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
	if p.Keepalive < 0 || p.Keepalive > time.Hour {
		errs = append(errs, fmt.Errorf("keepalive %s: allowed is 1s to 1h", p.Keepalive))
	}
	if p.Gateway.IsValid() && !p.Gateway.Is4() {
		errs = append(errs, fmt.Errorf("gateway address %s is not IPv4", p.Gateway))
	}
	if len(p.Theirs) > 16 || len(p.Ours) > 16 {
		errs = append(errs, errors.New("more than 16 ranges"))
		return errors.Join(errs...)
	}
	for _, m := range slices.Concat(p.Theirs, p.Ours) {
		errs = append(errs, m.validate())
		if m.Alias.IsValid() && !isPrivate(m.Alias) {
			errs = append(errs, fmt.Errorf("range %s: alias %s is not of private use", m.Name, m.Alias))
		}
	}
	errs = append(errs, disjoint("its ranges", p.Theirs), disjoint("our ranges", p.Ours))
	for _, t := range p.Theirs {
		for _, o := range p.Ours {
			if t.Alias.Overlaps(o.Real) {
				errs = append(errs, fmt.Errorf("alias %s of its %s overlaps our %s %s", t.Alias, t.Name, o.Name, o.Real))
			}
		}
	}
	return errors.Join(errs...)
}

func disjoint(whose string, ms []Mapping) error {
	for i, a := range ms {
		for _, b := range ms[:i] {
			if a.Real.Overlaps(b.Real) || a.Alias.Overlaps(b.Alias) {
				return fmt.Errorf("%s %q and %q overlap", whose, b.Name, a.Name)
			}
		}
	}
	return nil
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
