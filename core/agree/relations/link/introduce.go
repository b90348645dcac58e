package link

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/identity"
)

// Two providers of a home are introduced to each other by it, in their links, if it does that, and the owners of both let its guests meet directly. What
// each is told of the other is what home has proven of it and the range of its guests there.

// introductionDomain keeps what is signed here apart from everything else that an identity signs.
const introductionDomain = "kith introduction v1: guests of mine meet directly\x00"

// introduction is what a home signs for one provider about another. All parts but the last have fixed lengths. Endpoints are not in it: they are
// hints, and WireGuard shows who is there.
func introduction(home, to, other identity.ID, key gateway.Key, guests netip.Prefix) []byte {
	return slices.Concat([]byte(introductionDomain), home[:], to[:], other[:], key[:], []byte(guests.String()))
}

// Lets reports whether the owner of this cluster lets guests of the peer meet those at its other providers directly.
func (l *Linker) Lets(peer *v1alpha1.Peer) bool {
	return l.cfg.Provides && l.cfg.Links && sharing.Direct(sharing.Select(l.client.Now().Policies, peer))
}

// introduced are the providers that the peer is introduced to. They are sorted; where there are more than a link holds, the rest is left out.
func (l *Linker) introduced(peer *v1alpha1.Peer, lets bool) (list []v1alpha1.OtherProvider) {
	if !l.cfg.Introduces || !lets || !l.related(peer, v1alpha1.RoleConsumer) {
		return nil
	}
	for _, other := range l.client.Now().Peers {
		n := other.Status.Network
		if other.Name == peer.Name || n == nil || !n.Direct || n.GuestsThere == "" || !l.related(other, v1alpha1.RoleConsumer) {
			continue
		}
		var at netip.AddrPort
		if at.UnmarshalText([]byte(n.Endpoint)) != nil || netplan.CheckEndpoint(at) != nil {
			continue
		}
		list = append(list, v1alpha1.OtherProvider{ID: other.Spec.ID, PublicKey: n.PublicKey, Guests: n.GuestsThere, Endpoints: []string{at.String()}})
	}
	slices.SortFunc(list, func(a, b v1alpha1.OtherProvider) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(len(list), netplan.MaxDirect)]
}

// introduce has the peer's link say whom it is introduced to.
func (l *Linker) introduce(peer *v1alpha1.Peer, to identity.ID, lets bool) (list []peering.Introduction, err error) {
	for _, o := range l.introduced(peer, lets) {
		i := peering.Introduction{PublicKey: o.PublicKey, Endpoints: make([]netip.AddrPort, len(o.Endpoints))}
		key, wrong := gateway.ParseKey(o.PublicKey)
		wrong = errors.Join(wrong, i.ID.UnmarshalText([]byte(o.ID)), i.Guests.UnmarshalText([]byte(o.Guests)))
		for k, e := range o.Endpoints {
			wrong = errors.Join(wrong, i.Endpoints[k].UnmarshalText([]byte(e)))
		}
		if wrong != nil {
			return nil, fmt.Errorf("introduce %.64s: %w", o.ID, wrong)
		}
		i.Signature = l.cfg.Identity.Sign(introduction(l.cfg.Identity.ID(), to, i.ID, key, i.Guests))
		list = append(list, i)
	}
	return list, nil
}

// meet is what this cluster keeps of those that a home introduced to it; an error when the home did not sign it.
func (l *Linker) meet(home identity.ID, signer ed25519.PublicKey, theirs peering.Link) (list []v1alpha1.OtherProvider, err error) {
	for _, i := range theirs.Others {
		o := v1alpha1.OtherProvider{ID: i.ID.String(), PublicKey: i.PublicKey, Guests: i.Guests.String(), Signature: i.Signature}
		for _, e := range i.Endpoints {
			o.Endpoints = append(o.Endpoints, e.String())
		}
		if err := l.signedBy(home, signer, o); err != nil {
			return nil, peering.Refuse(peering.CodeForbidden, err.Error(), "")
		}
		if slices.ContainsFunc(list, func(had v1alpha1.OtherProvider) bool { return had.ID == o.ID }) {
			return nil, peering.Refuse(peering.CodeBadRequest, fmt.Sprintf("%s is introduced twice", i.ID.Short()), "")
		}
		list = append(list, o)
	}
	return list, nil
}

// signedBy reports what is wrong with an introduction that is kept, or is about to be: whoever writes the status of a Peer introduces nobody.
func (l *Linker) signedBy(home identity.ID, signer ed25519.PublicKey, o v1alpha1.OtherProvider) error {
	var other identity.ID
	var guests netip.Prefix
	key, err := gateway.ParseKey(o.PublicKey)
	if err = errors.Join(err, other.UnmarshalText([]byte(o.ID)), guests.UnmarshalText([]byte(o.Guests))); err != nil {
		return fmt.Errorf("introduction of %.64s: %w", o.ID, err)
	}
	if err := identity.Verify(signer, home, introduction(home, l.cfg.Identity.ID(), other, key, guests), o.Signature); err != nil {
		return fmt.Errorf("introduction of %s: %w", other.Short(), err)
	}
	return nil
}

// direct gives the gateway's peer the ways past it, while the owner lets its guests take them.
func (l *Linker) direct(g *gateway.Peer, peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus) error {
	if len(network.Others) == 0 || !l.Lets(peer) {
		return nil
	}
	home, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return err
	}
	for _, o := range network.Others {
		if err := l.signedBy(home, network.IntroducedBy, o); err != nil {
			return err
		}
		d := gateway.Direct{ID: o.ID, Endpoints: make([]netip.AddrPort, len(o.Endpoints))}
		var other identity.ID
		d.PublicKey, err = gateway.ParseKey(o.PublicKey)
		err = errors.Join(err, other.UnmarshalText([]byte(o.ID)), d.Guests.UnmarshalText([]byte(o.Guests)))
		for i, e := range o.Endpoints {
			err = errors.Join(err, d.Endpoints[i].UnmarshalText([]byte(e)))
		}
		if err != nil {
			return fmt.Errorf("introduction of %.64s: %w", o.ID, err)
		}
		if !slices.Contains(g.Space, d.Guests) {
			continue // its guests there ended, or are more than the space holds
		}
		if six := netplan.Guests6(home, other); slices.Contains(g.IPv6.Space, six) {
			d.Guests6 = six
		}
		g.Direct = append(g.Direct, d)
	}
	return nil
}

// Keep has the gateway's direct ways follow the owner's word at once, whether the peer can be told or not.
func (l *Linker) Keep(peer *v1alpha1.Peer) error {
	network := peer.Status.Network
	if network == nil || len(network.Others) == 0 {
		return nil
	}
	if had, known := l.cfg.Gateway.Peer(peer.Spec.ID); !known || (len(had.Direct) > 0) == l.Lets(peer) {
		return nil
	}
	g, err := l.gatewayPeer(peer, network)
	if err != nil {
		return err
	}
	return l.tell(peer, g)
}
