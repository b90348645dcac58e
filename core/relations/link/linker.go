package link

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/gateway"
	"kith.dev/core/identity"
	"kith.dev/core/netplan"
	"kith.dev/core/peering"
	"kith.dev/core/relations/record"
)

// Gateway is the part of the gateway that links need.
type Gateway interface {
	PublicKey() gateway.Key
	// Prove and Proven make and check proofs of who holds a WireGuard key.
	Prove(theirs gateway.Key, statement []byte) ([]byte, error)
	Proven(theirs gateway.Key, statement, proof []byte) bool
	SetPeer(gateway.Peer) error
	RemovePeer(id string) error
	Stats(id string) (gateway.Stats, bool)
	// Taken lists what a range for guests of or at the peer must not overlap.
	Taken(id string) ([]netip.Prefix, error)
}

// Config is what this cluster brings into a link.
type Config struct {
	Identity *identity.Identity
	Gateway  Gateway
	Port     uint16          // UDP, of WireGuard here
	Network  netplan.Cluster // this cluster's own ranges
	Links    bool            // guests here have links of their own, and addresses that Kith gives (cluster.Facts.GuestLinks)
	Pool     []netip.Prefix  // where ranges for guests are taken from
	Log      *slog.Logger
}

// handshake is how long a tunnel may take to come up until somebody is told so.
const handshake = time.Second

// Linker agrees with peers on addresses: a range for the guests of each side at the other, free at both. What was agreed is kept in the
// Peer's status; the gateway is told.
//
// Whoever gives a guest its address proposes the range; the other says the same, or another if that is not free there. So both hear
// of their own choice when it holds.
//
// A link is a question until its sender has bound its WireGuard key (see binding): it is answered, and changes nothing.
type Linker struct {
	client client.Client
	cfg    Config

	choosing sync.Mutex // guards chosen, and is held from the look at what is free until the choice is in it
	chosen   map[string]*v1alpha1.NetworkStatus // by the peer's ID; of their fields those that this side decides
	told     map[string][]netip.Prefix          // this cluster's address space, as peers know it, by their ID
}

// New makes a Linker.
func New(c client.Client, cfg Config) *Linker {
	return &Linker{client: c, cfg: cfg, chosen: map[string]*v1alpha1.NetworkStatus{}, told: map[string][]netip.Prefix{}}
}

// Answer takes the caller's side of the link and gives this one. The gateway knows the peer before the answer
// leaves, so that the caller's first handshake finds it.
func (l *Linker) Answer(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	peer, err := record.PeerByID(ctx, l.client, caller.ID)
	if err != nil {
		return peering.Link{}, err
	}
	if peer == nil || !l.related(ctx, peer) {
		return peering.Link{}, peering.Refuse(peering.CodeNoContract, "there is no contract between these clusters", "ask first")
	}
	network, err := l.agree(ctx, peer, caller.ID, caller.Key, caller.Addr.Addr(), theirs)
	if err != nil {
		return peering.Link{}, err
	}
	if network.Proof != nil && settled(network, theirs) {
		if err := l.keep(ctx, peer, network); err != nil {
			return peering.Link{}, err
		}
	}
	return l.link(ctx, peer, caller.ID, network)
}

// Propose makes the link from this side. It may be called again at any time; nothing that holds is disturbed.
//
// It is settled when the peer has heard, in one message, the ranges it wants itself and the binding to its own key, and
// its answer changes nothing: then the peer's gateway knows this one, and this one's can begin.
func (l *Linker) Propose(ctx context.Context, peer *v1alpha1.Peer, to *peering.Client, at netip.Addr) error {
	network := peer.Status.Network
	for range rounds {
		id, _ := to.Peer()
		ours, err := l.link(ctx, peer, id, network)
		if err != nil {
			return err
		}
		theirs, err := to.Link(ctx, ours)
		if err != nil {
			return fmt.Errorf("link with %s: %w", peer.Name, err)
		}
		_, key := to.Peer()
		agreed, err := l.agree(ctx, peer, id, key, at, theirs)
		if err == nil && agreed.Proof == nil {
			err = peering.Refuse(peering.CodeForbidden, "the peer did not prove that the WireGuard key it names is its own", "")
		}
		if err != nil {
			return fmt.Errorf("link with %s: %w", peer.Name, err)
		}
		if network != nil && network.PublicKey == agreed.PublicKey && network.Handle == agreed.Handle && ours.Here.String() == agreed.GuestsHere &&
			ours.There.String() == agreed.GuestsThere && settled(agreed, theirs) {
			if err := l.keep(ctx, peer, agreed); err != nil {
				return err
			}
			l.choosing.Lock()
			l.told[peer.Spec.ID] = ours.Space
			l.choosing.Unlock()
			l.waitUp(ctx, peer)
			return nil
		}
		network = agreed
	}
	return fmt.Errorf("link with %s: both sides keep changing their minds about addresses; is one of them moving between networks?", peer.Name)
}

// rounds is how often both may choose anew. Two are enough where each finds free what the other proposes.
const rounds = 8

// settled reports whether both sides mean the same ranges.
func settled(network *v1alpha1.NetworkStatus, theirs peering.Link) bool {
	return theirs.Here.String() == network.GuestsThere && theirs.There.IsValid() && theirs.There.String() == network.GuestsHere
}

// waitUp gives the first handshake, a matter of milliseconds, a moment: who is told "connected" uses the tunnel at
// once. A tunnel that does not come up is no error here; it shows in the state of the tunnel.
func (l *Linker) waitUp(ctx context.Context, peer *v1alpha1.Peer) {
	deadline := time.Now().Add(handshake)
	for time.Now().Before(deadline) {
		if s, ok := l.cfg.Gateway.Stats(peer.Spec.ID); !ok || s.Up {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
	l.cfg.Log.Warn("no handshake with the peer yet; is UDP let through?", "peer", peer.Name)
}

// Restore tells the gateway what was agreed with a peer before this process started. What would not be agreed to today
// is forgotten: it is agreed on anew when the peers meet.
func (l *Linker) Restore(ctx context.Context, peer *v1alpha1.Peer) error {
	network := peer.Status.Network
	if network == nil || !l.related(ctx, peer) {
		return nil
	}
	if _, told := l.cfg.Gateway.Stats(peer.Spec.ID); told { // by this process, and what is read here may be older
		return nil
	}
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return fmt.Errorf("the ID of peer %s: %w", peer.Name, err)
	}
	g, err := l.gatewayPeer(peer, network)
	if err == nil {
		err = errors.Join(g.Validate(), l.proven(id, g.PublicKey, network.Proof))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the link with %s is made anew: %w", peer.Name, err), // unless it was meanwhile
			l.write(ctx, peer, nil, client.MergeFromWithOptimisticLock{}))
	}
	return l.tell(peer, g)
}

// Drop forgets the link to a peer when no contract needs it any more.
func (l *Linker) Drop(ctx context.Context, peer *v1alpha1.Peer) error {
	if l.related(ctx, peer) {
		return nil
	}
	if err := l.cfg.Gateway.RemovePeer(peer.Spec.ID); err != nil {
		return fmt.Errorf("take the tunnel to %s down: %w", peer.Name, err)
	}
	l.choosing.Lock()
	delete(l.chosen, peer.Spec.ID)
	delete(l.told, peer.Spec.ID)
	l.choosing.Unlock()
	if peer.ResourceVersion == "" {
		return nil
	}
	return client.IgnoreNotFound(l.write(ctx, peer, nil))
}

// related tells whether a contract with the peer, in either role, is alive.
func (l *Linker) related(ctx context.Context, peer *v1alpha1.Peer) bool {
	var list v1alpha1.ContractList
	if l.client.List(ctx, &list) != nil {
		return true // not known: better not to cut
	}
	return slices.ContainsFunc(list.Items, func(c v1alpha1.Contract) bool {
		return c.Spec.Peer == peer.Name && c.DeletionTimestamp == nil
	})
}

// link is this side of the link: with the ranges chosen so far, and bound when the peer's key is known.
func (l *Linker) link(ctx context.Context, peer *v1alpha1.Peer, to identity.ID, network *v1alpha1.NetworkStatus) (peering.Link, error) {
	link := peering.Link{
		PublicKey: l.cfg.Gateway.PublicKey().String(), Port: int(l.cfg.Port), Plan: peering.LinkPlan,
		Space: l.space(ctx, peer), Services: l.cfg.Network.Services, At: l.cfg.Network.Gateway(),
	}
	if network == nil {
		network = &v1alpha1.NetworkStatus{}
		if err := l.choose(ctx, peer, peering.Link{}, network); err != nil {
			return link, err
		}
	}
	pair, err := l.pair(network)
	if err != nil {
		return link, err
	}
	link.Here, link.There, link.Handle = pair.Here, pair.There, pair.Handle
	link.AtHere = netplan.GuestGateway(pair.Here)
	if at, ok := pair.Guests.ToAlias(link.At); ok {
		link.AtHere = at
	}
	if network.PublicKey != "" {
		link.Binding, err = l.bind(to, network.PublicKey)
	}
	return link, err
}

// pair reads what was agreed. Where guests here do not get their addresses from Kith, they have those of this cluster's pods.
func (l *Linker) pair(network *v1alpha1.NetworkStatus) (netplan.Pair, error) {
	if l.cfg.Links {
		return network.Pair(netip.Prefix{})
	}
	return network.Pair(l.cfg.Network.Pods)
}

// agree checks what the peer says and chooses ranges. Nothing comes of it yet: that is for keep, and only if the key is bound (Proof is
// there) and both say the same.
func (l *Linker) agree(ctx context.Context, peer *v1alpha1.Peer, id identity.ID, key ed25519.PublicKey, at netip.Addr, theirs peering.Link) (*v1alpha1.NetworkStatus, error) {
	network := &v1alpha1.NetworkStatus{PublicKey: theirs.PublicKey, AtThere: text(theirs.AtHere), AtHome: text(theirs.At), Called: text(theirs.Handle)}
	if theirs.Services.IsValid() {
		network.Services = theirs.Services.String()
	}
	for _, r := range theirs.Space {
		network.Space = append(network.Space, r.String())
	}
	if at.IsValid() && !at.IsLinkLocalUnicast() { // else it is waited for
		network.Endpoint = netip.AddrPortFrom(at.Unmap(), uint16(theirs.Port)).String()
	}
	var err error
	if network.Proof, err = l.bound(id, key, theirs); err != nil {
		return nil, err
	}
	if err := netplan.CheckRange(theirs.Here); err != nil {
		return nil, peering.Refuse(peering.CodeBadRequest, "here: "+err.Error(), "")
	}
	if err := l.choose(ctx, peer, theirs, network); err != nil {
		return nil, err
	}
	if !settled(network, theirs) {
		return network, nil // not a plan yet, only what this side says next
	}
	g, err := l.gatewayPeer(peer, network)
	if err == nil {
		err = g.Validate()
	}
	if err != nil {
		return nil, peering.Refuse(peering.CodeBadRequest, strings.ReplaceAll(err.Error(), "\n", "; "), "")
	}
	return network, nil
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// keep tells the gateway what was agreed, and writes it down. The gateway goes first: what it refuses is not kept.
func (l *Linker) keep(ctx context.Context, peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus) error {
	g, err := l.gatewayPeer(peer, network)
	if err != nil {
		return err
	}
	if err := l.tell(peer, g); err != nil {
		return err
	}
	return l.write(ctx, peer, network)
}

func (l *Linker) tell(peer *v1alpha1.Peer, g gateway.Peer) error {
	err := l.cfg.Gateway.SetPeer(g)
	switch {
	case errors.Is(err, gateway.ErrKeyTaken):
		return peering.Refuse(peering.CodeForbidden, "the WireGuard key is that of another peer here", "make one of its own: stop kithd, remove wireguard.key in its data directory, start kithd")
	case err != nil:
		return fmt.Errorf("set up the tunnel to %s: %w", peer.Name, err)
	}
	return nil
}

// write puts what was agreed, or that nothing is, into the Peer's status. Nobody else writes that field.
func (l *Linker) write(ctx context.Context, peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus, opts ...client.MergeFromOption) error {
	return record.PatchStatus(ctx, l.client, peer, func(s *v1alpha1.PeerStatus) { s.Network = network }, opts...)
}

// gatewayPeer is a Peer's network as the gateway takes it.
func (l *Linker) gatewayPeer(peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus) (gateway.Peer, error) {
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
	if g.Pair, err = l.pair(network); err != nil {
		return gateway.Peer{}, fmt.Errorf("the addresses agreed on with %s: %w", peer.Name, err)
	}
	return g, nil
}
