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
	// Taken lists what an alias for a range of the peer must not overlap.
	Taken(id string) ([]netip.Prefix, error)
}

// Config is what this cluster brings into a link.
type Config struct {
	Identity *identity.Identity
	Gateway  Gateway
	Port     uint16                  // UDP, of WireGuard here
	Ranges   map[string]netip.Prefix // this cluster's own, by name ("pods")
	Pool     []netip.Prefix          // where aliases are taken from
	Log      *slog.Logger
}

// handshake is how long a tunnel may take to come up until somebody is told so.
const handshake = time.Second

// Linker agrees with peers on aliases: each side picks, for every range the other shows it, one that is free
// here. What was agreed is kept in the Peer's status; the gateway is told.
//
// A link is a question until its sender has bound its WireGuard key (see binding): it is answered, and changes nothing.
type Linker struct {
	client client.Client
	cfg    Config

	choosing sync.Mutex // guards chosen, and is held from the look at what is free until the choice is in it
	chosen   map[string][]v1alpha1.RangeAlias
}

// New makes a Linker.
func New(c client.Client, cfg Config) *Linker {
	return &Linker{client: c, cfg: cfg, chosen: map[string][]v1alpha1.RangeAlias{}}
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
	if network.Proof != nil && len(network.Ours) == len(l.cfg.Ranges) {
		if err := l.keep(ctx, peer, network); err != nil {
			return peering.Link{}, err
		}
	}
	return l.link(caller.ID, network)
}

// Propose makes the link from this side. It may be called again at any time; nothing that holds is disturbed.
//
// It is settled when the peer has heard, in one message, this side's aliases and the binding to the peer's own key, and
// its answer changes nothing: then the peer's gateway knows this one, and this one's can begin.
func (l *Linker) Propose(ctx context.Context, peer *v1alpha1.Peer, to *peering.Client, at netip.Addr) error {
	network := peer.Status.Network
	for range 3 { // what one side shows may make the other choose; it settles in two rounds
		id, _ := to.Peer()
		ours, err := l.link(id, network)
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
		if network != nil && network.PublicKey == agreed.PublicKey && slices.Equal(network.Theirs, agreed.Theirs) && len(agreed.Ours) == len(l.cfg.Ranges) {
			if err := l.keep(ctx, peer, agreed); err != nil {
				return err
			}
			l.waitUp(ctx, peer)
			return nil
		}
		network = agreed
	}
	return fmt.Errorf("link with %s: both sides keep changing their minds about addresses; is one of them moving between networks?", peer.Name)
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
	g, err := gatewayPeer(peer, network)
	if err == nil {
		err = errors.Join(l.admit(g), l.proven(id, g.PublicKey, network.Proof))
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

// link is this side of the link, with the aliases chosen so far, and bound when the peer's key is known.
func (l *Linker) link(to identity.ID, network *v1alpha1.NetworkStatus) (peering.Link, error) {
	link := peering.Link{PublicKey: l.cfg.Gateway.PublicKey().String(), Port: int(l.cfg.Port)}
	for name, prefix := range l.cfg.Ranges {
		link.Ranges = append(link.Ranges, peering.Range{Name: name, Prefix: prefix})
	}
	if network == nil {
		return link, nil
	}
	for _, r := range network.Theirs {
		if alias, err := netip.ParsePrefix(r.Alias); err == nil {
			link.Aliases = append(link.Aliases, peering.Range{Name: r.Name, Prefix: alias})
		}
	}
	var err error
	link.Binding, err = l.bind(to, network.PublicKey)
	return link, err
}

// agree checks what the peer says and chooses aliases for its ranges. Nothing comes of it yet: that is for keep, and only
// if the key is bound (Proof is there).
func (l *Linker) agree(ctx context.Context, peer *v1alpha1.Peer, id identity.ID, key ed25519.PublicKey, at netip.Addr, theirs peering.Link) (*v1alpha1.NetworkStatus, error) {
	if err := l.names(theirs); err != nil {
		return nil, peering.Refuse(peering.CodeBadRequest, err.Error(), "")
	}
	network := &v1alpha1.NetworkStatus{PublicKey: theirs.PublicKey}
	if at.IsValid() && !at.IsLinkLocalUnicast() { // else it is waited for
		network.Endpoint = netip.AddrPortFrom(at.Unmap(), uint16(theirs.Port)).String()
	}
	var err error
	if network.Proof, err = l.bound(id, key, theirs); err != nil {
		return nil, err
	}
	for _, r := range theirs.Aliases {
		network.Ours = append(network.Ours, v1alpha1.RangeAlias{Name: r.Name, Real: l.cfg.Ranges[r.Name].String(), Alias: r.Prefix.String()})
	}
	if network.Theirs, err = l.choose(ctx, peer, theirs.Ranges); err != nil {
		return nil, err
	}
	g, err := gatewayPeer(peer, network)
	if err == nil {
		err = g.Validate()
	}
	if err != nil {
		return nil, peering.Refuse(peering.CodeBadRequest, strings.ReplaceAll(err.Error(), "\n", "; "), "")
	}
	return network, nil
}

// keep tells the gateway what was agreed, and writes it down. The gateway goes first: what it refuses is not kept.
func (l *Linker) keep(ctx context.Context, peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus) error {
	g, err := gatewayPeer(peer, network)
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
