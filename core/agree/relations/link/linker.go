package link

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/record"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/identity"
)

// Gateway is the part of the gateway that links need.
type Gateway interface {
	PublicKey() gateway.Key
	// Prove and Proven make and check proofs of who holds a WireGuard key.
	Prove(theirs gateway.Key, statement []byte) ([]byte, error)
	Proven(theirs gateway.Key, statement, proof []byte) bool
	SetPeer(gateway.Peer) error
	RemovePeer(id string) error
	Peer(id string) (gateway.Peer, bool)
	Stats(id string) (gateway.Stats, bool)
	// Taken lists the ranges that a range for guests of or at the peer must not overlap; Overlapping, its ranges that do by now.
	Taken(id string) ([]netip.Prefix, error)
	Overlapping(id string) []netip.Prefix
}

// Config is what this cluster brings into a link.
type Config struct {
	Identity *identity.Identity
	Gateway  Gateway
	Port     uint16          // UDP, of WireGuard here
	Network  netplan.Cluster // this cluster's own ranges
	Pool     []netip.Prefix  // where ranges for guests are taken from; none: the default
	Provides bool            // guests can be taken in here
	Links    bool            // they have links of their own, and addresses that Kith gives (cluster.Facts.GuestLinks)
	Guests   Guests
	// Addresses are those of the peer's guests here.
	Addresses func(ctx context.Context, peer *v1alpha1.Peer) ([]netip.Addr, error)
	// WentOn reports whether guests of the peer are at a provider of this cluster, by the name of its Peer.
	WentOn func(ctx context.Context, peer *v1alpha1.Peer, provider string) (bool, error)
	// Introduces: providers whose owners both allow it are told how to reach each other, for this cluster's guests at them.
	Introduces bool
	Log        *slog.Logger
}

// Guests reports whether there are guests with addresses of the agreed ranges: of a peer here, and of this cluster at the peer.
type Guests func(ctx context.Context, peer *v1alpha1.Peer) (here, there bool, err error)

// Linker negotiates addresses with peers: a range for the guests of each side at the other, free at both (direction has the rules). The result is
// written into the Peer's status and given to the gateway.
//
// A Link message is answered but changes nothing until its sender has proven its WireGuard key (see binding).
type Linker struct {
	client *ledger.Ledger
	cfg    Config
	room   room // with nothing in it

	choosing sync.Mutex       // guards plans, and is held from the look at what is free until the choice is in it
	plans    map[string]*plan // by the peer's ID
}

// plan is the state of the negotiation with a peer.
type plan struct {
	proposing atomic.Bool   // this side
	turn      sync.Mutex    // held while one message of the peer is worked on; it guards what follows
	answered  int           // how many links of the peer
	changes   *rate.Limiter // limits how often the peer may change what was agreed

	here, there direction // guarded by Linker.choosing, with what follows
	aliases     []netplan.Mapping
	ipv6        []netip.Prefix // ranges for guests that were agreed on
}

// New makes a Linker.
func New(c *ledger.Ledger, cfg Config) *Linker {
	where := room{pool: cfg.Pool, owner: len(cfg.Pool) > 0}
	if !where.owner {
		where.pool = netplan.GuestPool()
	}
	return &Linker{client: c, cfg: cfg, room: where, plans: map[string]*plan{}}
}

// plan is what is remembered of the link with a peer: at first what was agreed on before this process started. What of that cannot be read is
// agreed on anew.
func (l *Linker) plan(peer *v1alpha1.Peer) *plan {
	l.choosing.Lock()
	defer l.choosing.Unlock()
	p := l.plans[peer.Spec.ID]
	if p == nil {
		was, _ := peer.Status.Network.Pair(netip.Prefix{})
		p = &plan{changes: rate.NewLimiter(changeRate, changeBurst), here: direction{agreed: was.Here}, there: direction{agreed: was.There}, aliases: was.Aliases, ipv6: ranges6(was)}
		l.plans[peer.Spec.ID] = p
	}
	return p
}

var errNoNetwork = peering.Refuse(peering.CodeNoContract, "the contract between these clusters is one without a network", "end it, and ask for one with a network")

var errNoContract = peering.Refuse(peering.CodeNoContract, "there is no contract between these clusters", "ask first")

// How often a peer may have what was agreed on changed: each time routes, objects and what follows from them are written anew.
const (
	changeRate  = 0.5              // a second
	changeBurst = netplan.MaxSpace // a home that has all its providers at once tells each of the others
)

// errCrossed says that both sides propose at the same time. The one with the lesser ID goes on; the other waits for its proposal.
var errCrossed = peering.Refuse(peering.CodeRateLimited, "both sides propose a link at the same moment", "try again in a second")

// crossPause is how long the other waits until it looks whether it still has something to propose.
const crossPause = 200 * time.Millisecond

// Answer handles a Link message of the caller and returns this side's. The gateway has the peer before the answer is sent, so that the
// caller's first WireGuard handshake succeeds.
func (l *Linker) Answer(ctx context.Context, caller peering.Caller, theirs peering.Link) (ours peering.Link, err error) {
	peer := l.client.Now().Peer(caller.ID.String()).DeepCopy()
	if peer == nil {
		return ours, errNoContract
	}
	if err := l.mayLink(peer); err != nil {
		return ours, err
	}
	p := l.plan(peer)
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := l.mayLink(peer); err != nil { // since a moment ago
		return ours, err
	}
	if mine := l.cfg.Identity.ID(); p.proposing.Load() && bytes.Compare(mine[:], caller.ID[:]) < 0 {
		return ours, errCrossed
	}
	p.answered++
	proof, err := l.bound(caller.ID, caller.Key, theirs)
	if err != nil {
		return ours, err
	}
	if ours, err = l.say(ctx, peer, p, caller.ID, theirs); err != nil || proof == nil || !same(ours, theirs) {
		return ours, err
	}
	return ours, l.settle(ctx, peer, p, caller.Addr.Addr(), ours, theirs, said{caller.ID, caller.Key, proof}, p.changes.Allow)
}

// Propose negotiates the link from this side. It is idempotent: a link that works stays, also when the two sides cannot agree on a new one.
//
// The link is settled when one message of this side has the ranges that the peer wants and the binding to the peer's key, and the answer says the
// same: then the peer's gateway knows this one, and the handshake can begin.
func (l *Linker) Propose(ctx context.Context, peer *v1alpha1.Peer, to *peering.Client, at netip.Addr) error {
	p := l.plan(peer)
	p.proposing.Store(true)
	defer p.proposing.Store(false)
	var theirs peering.Link
	var err error
	for range rounds {
		var done bool
		switch done, err = l.round(ctx, peer, p, to, at, &theirs); {
		case errors.Is(err, &peering.Problem{Code: peering.CodeRateLimited}):
			theirs = peering.Link{}
			select {
			case <-time.After(crossPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		case err != nil:
			return fmt.Errorf("link with %s: %w", peer.Name, err)
		case done:
			l.waitUp(ctx, peer)
			return nil
		}
	}
	if err != nil { // to the end others came first
		return fmt.Errorf("link with %s: %w", peer.Name, err)
	}
	err = fmt.Errorf("link with %s: the two find no addresses for guests that are free at both; is one of them moving between networks? aliasPools, at both, says where to look",
		peer.Name)
	if peer.Status.Network == nil {
		return err
	}
	l.cfg.Log.Warn("those agreed on before stay", "peer", peer.Name, "why", err) // beside a network that has them too, pods reach each other
	return l.Restore(ctx, peer)
}

// handshake is how long waitUp waits for a tunnel.
const handshake = time.Second

// rounds is how often both may choose other ranges. Two rounds are enough if each range that one side names is free at the other; see direction.
const rounds = 8

// round says this side of the link once and hears the other. theirs is what the peer said last, if anything. done: it is settled.
func (l *Linker) round(ctx context.Context, peer *v1alpha1.Peer, p *plan, to *peering.Client, at netip.Addr, theirs *peering.Link) (done bool, err error) {
	id, _ := to.Peer()
	p.turn.Lock()
	answered := p.answered
	ours, err := l.say(ctx, peer, p, id, *theirs)
	p.turn.Unlock()
	if err != nil {
		return false, err
	}
	if *theirs, err = to.Link(ctx, ours); err != nil {
		return false, err
	}
	_, key := to.Peer()
	proof, err := l.bound(id, key, *theirs)
	switch {
	case err != nil:
		return false, err
	case proof == nil:
		return false, peering.Refuse(peering.CodeForbidden, "the peer did not prove that the WireGuard key it names is its own", "")
	case !theirs.Here.IsValid() && l.related(peer, v1alpha1.RoleConsumer):
		return false, peering.Refuse(peering.CodeForbidden, "it can take no guests in: it has no addresses for them", "")
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	switch {
	case p.answered != answered:
		return false, errCrossed
	case l.mayLink(peer) != nil: // since a moment ago
		return false, l.mayLink(peer)
	case ours.Binding == nil || ours.Binding.PeerKey != theirs.PublicKey || !same(ours, *theirs):
		return false, nil
	}
	return true, l.settle(ctx, peer, p, at, ours, *theirs, said{id, key, proof}, func() bool { return true })
}

// waitUp gives the first handshake, a matter of milliseconds, a moment: who is told "connected" uses the tunnel at
// once. A tunnel that does not come up is no error here; it shows in the state of the tunnel.
func (l *Linker) waitUp(ctx context.Context, peer *v1alpha1.Peer) {
	for deadline := time.Now().Add(handshake); time.Now().Before(deadline); {
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

// same reports whether both sides say the same ranges.
func same(ours, theirs peering.Link) bool {
	return ours.Here == theirs.There && ours.There == theirs.Here
}

// Restore tells the gateway what was agreed with a peer before this process started. What would not be agreed to today
// is forgotten: it is agreed on anew when the peers meet. A network that this laptop came to meanwhile is no reason: guests still have their addresses.
func (l *Linker) Restore(ctx context.Context, peer *v1alpha1.Peer) error {
	network := peer.Status.Network
	if !network.Linked() || l.mayLink(peer) != nil {
		return nil
	}
	if _, told := l.cfg.Gateway.Stats(peer.Spec.ID); told { // by this process, and what is read here may be older
		return nil
	}
	id, err := identity.ParseID(peer.Spec.ID)
	if err != nil {
		return fmt.Errorf("the ID of peer %s: %w", peer.Name, err)
	}
	if !l.ipv6() && network.IPv6 != nil { // it was turned off here; IPv4 holds
		network = network.DeepCopy()
		network.IPv6 = nil
		if err := l.write(ctx, peer, network, client.MergeFromWithOptimisticLock{}); err != nil {
			return err
		}
	}
	g, err := l.gatewayPeer(peer, network)
	if err == nil {
		err = errors.Join(l.ownRanges(g.Pair), l.proven(id, g.PublicKey, network.Proof))
	}
	if err != nil {
		l.forget(peer)
		return errors.Join(fmt.Errorf("the link with %s is made anew: %w", peer.Name, err), // unless it was meanwhile
			l.write(ctx, peer, nil, client.MergeFromWithOptimisticLock{}))
	}
	return l.tell(peer, g)
}

// ownRanges reports what of a pair would now be in the way of this cluster itself, whose ranges may have been set anew.
func (l *Linker) ownRanges(p netplan.Pair) error {
	own := []netip.Prefix{l.cfg.Network.Pods, l.cfg.Network.Services, l.cfg.Network.IPv6.Pods, l.cfg.Network.IPv6.Services}
	for _, r := range p.Ranges() {
		if !netplan.Free(r, own) {
			return fmt.Errorf("%s lies in this cluster's own ranges, %v", r, own)
		}
	}
	if p.Here.IsValid() && (!l.cfg.Provides || p.Here.Bits() != l.guestBits()) {
		return fmt.Errorf("guests here get no addresses out of %s", p.Here)
	}
	return nil
}

// Drop removes the link to a peer if no contract needs it any more.
func (l *Linker) Drop(ctx context.Context, peer *v1alpha1.Peer) error {
	if l.related(peer, "") {
		return nil
	}
	p := l.plan(peer)
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := l.cfg.Gateway.RemovePeer(peer.Spec.ID); err != nil {
		return fmt.Errorf("take the tunnel to %s down: %w", peer.Name, err)
	}
	l.forget(peer)
	if peer.ResourceVersion == "" {
		return nil
	}
	return client.IgnoreNotFound(l.write(ctx, peer, nil))
}

func (l *Linker) forget(peer *v1alpha1.Peer) {
	l.choosing.Lock()
	defer l.choosing.Unlock()
	delete(l.plans, peer.Spec.ID)
}

// related reports whether there is a contract with the peer, in that role or, with "", in either.
func (l *Linker) related(peer *v1alpha1.Peer, role v1alpha1.Role) bool {
	return slices.ContainsFunc(l.client.Now().With(peer.Name, role), func(c *v1alpha1.Contract) bool { return c.DeletionTimestamp == nil })
}

// mayLink says why there is to be no tunnel to a peer; nil when there is to be one.
func (l *Linker) mayLink(peer *v1alpha1.Peer) error {
	switch {
	case !l.related(peer, ""):
		return errNoContract
	case slices.ContainsFunc(l.client.Now().With(peer.Name, ""), func(c *v1alpha1.Contract) bool { return c.DeletionTimestamp == nil && !sharing.MayLink(c) }):
		return errNoNetwork
	}
	return nil
}

// said is who said a link, and how its WireGuard key was proven.
type said struct {
	id    identity.ID
	key   ed25519.PublicKey
	proof []byte
}

// settle keeps what both said; an error when it cannot be meant, or when it would change and may not. The gateway goes first: what it
// refuses is not written down. at is where the peer's message came from, or went to. The caller has the turn.
func (l *Linker) settle(ctx context.Context, peer *v1alpha1.Peer, p *plan, at netip.Addr, ours, theirs peering.Link, by said, may func() bool) error {
	network := &v1alpha1.NetworkStatus{
		PublicKey: theirs.PublicKey, Proof: by.proof, Direct: theirs.Direct, GuestsHere: text(ours.Here), GuestsThere: text(ours.There), Services: text(theirs.Services),
		AtThere: text(theirs.AtHere), AtHome: text(theirs.At),
	}
	if at.IsValid() { // else it is waited for; a link-local one has this host's zone, for it is that of a connection, and not of the peer's telling
		network.Endpoint = netip.AddrPortFrom(at.Unmap(), uint16(theirs.Port)).String()
	}
	if was := peer.Status.Network; network.Endpoint == "" && was != nil && was.PublicKey == theirs.PublicKey {
		network.Endpoint = was.Endpoint // of a message that somebody passed on: what is known stays
	}
	for _, r := range theirs.Space {
		network.Space = append(network.Space, r.String())
	}
	network.Aliases = rangeAliases(p.aliases) // they are written by whoever has the turn
	network.Shared = stillShared(peer.Status.Network, ours.Here)
	network.Relayed = stillRelayed(peer.Status.Network, ours.Here)
	network.IPv6 = l.agree6(peer, ours, theirs)
	var err error
	if network.Onward, err = l.homes(ctx, peer, theirs.Onward, ours); err != nil {
		return err
	}
	if network.Others, err = l.meet(by.id, by.key, theirs); err != nil {
		return err
	}
	if len(network.Others) > 0 {
		network.IntroducedBy = by.key
	}
	g, err := l.gatewayPeer(peer, network)
	switch {
	case err != nil:
		return peering.Refuse(peering.CodeBadRequest, strings.ReplaceAll(err.Error(), "\n", "; "), "")
	case !equality.Semantic.DeepEqual(network, peer.Status.Network) && !may():
		return peering.Refuse(peering.CodeRateLimited, "the link was changed too often", "wait a moment")
	}
	if err := l.tell(peer, g); err != nil {
		return err
	}
	l.choosing.Lock()
	p.here.agree(ours.Here)
	p.there.agree(ours.There)
	p.ipv6 = ranges6(g.Pair)
	l.choosing.Unlock()
	return l.write(ctx, peer, network)
}

// text of an address or a range; that of none is empty.
func text(of encoding.TextMarshaler) string {
	b, _ := of.MarshalText()
	return string(b)
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

// gatewayPeer is a Peer's network as the gateway takes it; an error when it cannot be meant.
func (l *Linker) gatewayPeer(peer *v1alpha1.Peer, network *v1alpha1.NetworkStatus) (gateway.Peer, error) {
	var pods netip.Prefix // from which guests here have their addresses when they do not get them from Kith
	if !l.cfg.Links {
		pods = l.cfg.Network.Pods
	}
	g := gateway.Peer{ID: peer.Spec.ID, Name: peer.Name}
	var key, pair error
	g.PublicKey, key = gateway.ParseKey(network.PublicKey)
	g.Pair, pair = network.Pair(pods)
	if err := errors.Join(key, g.Endpoint.UnmarshalText([]byte(network.Endpoint)), pair); err != nil {
		return g, err
	}
	if err := l.direct(&g, peer, network); err != nil {
		return g, err
	}
	return g, g.Validate()
}
