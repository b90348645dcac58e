package relations

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/gateway"
	"kith.dev/core/peering"
)

// Gateway is the part of the gateway that links need.
type Gateway interface {
	PublicKey() gateway.Key
	SetPeer(gateway.Peer) error
	RemovePeer(id string) error
	Stats(id string) (gateway.Stats, bool)
	// Taken lists what an alias for a range of the peer must not overlap.
	Taken(id string) ([]netip.Prefix, error)
}

// LinkerConfig is what this cluster brings into a link.
type LinkerConfig struct {
	Gateway Gateway
	Port    uint16                  // UDP, of WireGuard here
	Ranges  map[string]netip.Prefix // this cluster's own, by name ("pods")
	Pool    []netip.Prefix          // where aliases are taken from
	Log     *slog.Logger
}

// handshake is how long a tunnel may take to come up until somebody is told so.
const handshake = time.Second

// Linker agrees with peers on aliases: each side picks, for every range the other shows it, one that is free
// here. What was agreed is kept in the Peer's status; the gateway is told.
type Linker struct {
	client client.Client
	cfg    LinkerConfig
	// choosing is held from the look at what is free until the choice is in the gateway.
	choosing sync.Mutex
}

// NewLinker makes a Linker.
func NewLinker(c client.Client, cfg LinkerConfig) *Linker { return &Linker{client: c, cfg: cfg} }

// Answer takes the caller's side of the link and gives this one. The gateway knows the peer before the answer
// leaves, so that the caller's first handshake finds it.
func (l *Linker) Answer(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	peer, err := PeerByID(ctx, l.client, caller.ID)
	if err != nil {
		return peering.Link{}, err
	}
	if peer == nil || !l.related(ctx, peer) {
		return peering.Link{}, refuse(peering.CodeNoContract, "there is no contract between these clusters", "ask first")
	}
	network, err := l.agree(ctx, peer, caller.Addr.Addr(), theirs)
	if err != nil {
		return peering.Link{}, err
	}
	return l.link(network), nil
}

// Propose makes the link from this side. It may be called again at any time; nothing that holds is disturbed.
func (l *Linker) Propose(ctx context.Context, peer *v1alpha1.Peer, to *peering.Client, at netip.Addr) error {
	network := peer.Status.Network
	for range 3 { // what one side shows may make the other choose; it settles in two rounds
		theirs, err := to.Link(ctx, l.link(network))
		if err != nil {
			return fmt.Errorf("link with %s: %w", peer.Name, err)
		}
		agreed, err := l.agree(ctx, peer, at, theirs)
		if err != nil {
			return err
		}
		if network != nil && slices.Equal(network.Theirs, agreed.Theirs) && len(agreed.Ours) == len(l.cfg.Ranges) {
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

// Restore tells the gateway what was agreed with a peer before this process started.
func (l *Linker) Restore(ctx context.Context, peer *v1alpha1.Peer) error {
	if peer.Status.Network == nil || !l.related(ctx, peer) {
		return nil
	}
	return l.tell(peer, peer.Status.Network)
}

// Drop forgets the link to a peer when no contract needs it any more.
func (l *Linker) Drop(ctx context.Context, peer *v1alpha1.Peer) error {
	if l.related(ctx, peer) {
		return nil
	}
	if err := l.cfg.Gateway.RemovePeer(peer.Spec.ID); err != nil {
		return fmt.Errorf("take the tunnel to %s down: %w", peer.Name, err)
	}
	if peer.ResourceVersion == "" {
		return nil
	}
	return client.IgnoreNotFound(patchStatus(ctx, l.client, peer, func(s *v1alpha1.PeerStatus) { s.Network = nil }))
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

// link is this side of the link, with the aliases chosen so far.
func (l *Linker) link(network *v1alpha1.NetworkStatus) peering.Link {
	link := peering.Link{PublicKey: l.cfg.Gateway.PublicKey().String(), Port: int(l.cfg.Port)}
	for name, prefix := range l.cfg.Ranges {
		link.Ranges = append(link.Ranges, peering.Range{Name: name, Prefix: prefix})
	}
	if network != nil {
		for _, r := range network.Theirs {
			if alias, err := netip.ParsePrefix(r.Alias); err == nil {
				link.Aliases = append(link.Aliases, peering.Range{Name: r.Name, Prefix: alias})
			}
		}
	}
	return link
}

// agree chooses aliases for the peer's ranges, keeps all in the status and, once both sides chose, tells the gateway.
func (l *Linker) agree(ctx context.Context, peer *v1alpha1.Peer, at netip.Addr, theirs peering.Link) (*v1alpha1.NetworkStatus, error) {
	l.choosing.Lock()
	defer l.choosing.Unlock()
	network := &v1alpha1.NetworkStatus{PublicKey: theirs.PublicKey}
	if at.IsValid() && !at.IsLinkLocalUnicast() { // else it is waited for
		network.Endpoint = netip.AddrPortFrom(at.Unmap(), uint16(theirs.Port)).String()
	}
	for _, r := range theirs.Ranges {
		alias, err := l.alias(ctx, peer, r)
		if err != nil {
			return nil, err
		}
		network.Theirs = append(network.Theirs, v1alpha1.RangeAlias{Name: r.Name, Real: r.Prefix.String(), Alias: alias.String()})
	}
	for _, r := range theirs.Aliases {
		if real, ok := l.cfg.Ranges[r.Name]; ok {
			network.Ours = append(network.Ours, v1alpha1.RangeAlias{Name: r.Name, Real: real.String(), Alias: r.Prefix.String()})
		}
	}
	if err := patchStatus(ctx, l.client, peer, func(s *v1alpha1.PeerStatus) { s.Network = network }); err != nil {
		return nil, err
	}
	if len(network.Ours) < len(l.cfg.Ranges) {
		return network, nil
	}
	return network, l.tell(peer, network)
}

// alias keeps the one that was chosen before as long as it is free.
func (l *Linker) alias(ctx context.Context, peer *v1alpha1.Peer, r peering.Range) (netip.Prefix, error) {
	taken, err := l.cfg.Gateway.Taken(peer.Spec.ID)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("see which addresses are in use here: %w", err)
	}
	taken = append(taken, l.ofOthers(ctx, peer)...)
	if old := peer.Status.Network; old != nil {
		for _, was := range old.Theirs {
			alias, err := netip.ParsePrefix(was.Alias)
			if err == nil && was.Name == r.Name && was.Real == r.Prefix.String() && !overlaps(alias, taken) {
				return alias, nil
			}
		}
	}
	alias, err := gateway.ChooseAlias(r.Prefix, taken, l.cfg.Pool, peer.Spec.ID)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("find free addresses for the range %q (%s) of %s: %w", r.Name, r.Prefix, peer.Name, err)
	}
	return alias, nil
}

// ofOthers are the aliases that other peers hold, linked or not: they must find them free when they come back.
func (l *Linker) ofOthers(ctx context.Context, peer *v1alpha1.Peer) []netip.Prefix {
	var list v1alpha1.PeerList
	if l.client.List(ctx, &list) != nil {
		return nil
	}
	var taken []netip.Prefix
	for _, other := range list.Items {
		if other.Name == peer.Name || other.Status.Network == nil {
			continue
		}
		for _, r := range other.Status.Network.Theirs {
			if alias, err := netip.ParsePrefix(r.Alias); err == nil {
				taken = append(taken, alias)
			}
		}
	}
	return taken
}

func overlaps(p netip.Prefix, taken []netip.Prefix) bool {
	return slices.ContainsFunc(taken, p.Overlaps)
}

func (l *Linker) tell(peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus) error {
	g, err := gatewayPeer(peer, network)
	if err != nil {
		return err
	}
	if err := l.cfg.Gateway.SetPeer(g); err != nil {
		return fmt.Errorf("set up the tunnel to %s: %w", peer.Name, err)
	}
	return nil
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
