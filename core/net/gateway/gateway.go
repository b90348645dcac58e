package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kith.dev/core/net/gateway/datapath"
	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
)

// DefaultMTU of the device: WireGuard over IPv6 on Ethernet just fits, with the header in front of each packet.
const DefaultMTU = 1420 - datapath.Header

// minMTU is what every IPv4 host must take (RFC 791). Over a path with less, outer packets are fragmented.
const minMTU = 576

// Config is fixed for the life of a Gateway.
type Config struct {
	Device     string           // name of the TUN device, such as kith0
	Address    netip.Addr       // our own address on it, inside the pods' range, so that guests elsewhere know it too
	ListenPort uint16           // UDP
	PrivateKey PrivateKey       //
	Pods       netip.Prefix     // this cluster's own range of pods, the node's address among them: what our guests elsewhere reach
	IPv6       netplan.Cluster6 // this cluster's ranges of IPv6; none: IPv4 alone
	Reserved   []netip.Prefix   // other ranges of this cluster (services), which like Pods are never used for guests
	HostPorts  []uint16         // TCP ports on this host's own addresses that peers may connect to, such as the API server's
	Guests     uint32           // group of the links that lead to guests (guestnet.Group); 0: they have none of their own
	// Changed is called when a tunnel came up or went down (Stats.Up), and when an overlap of ranges (Overlapping) begins or ends, repeatedly
	// while there is one. It must not block.
	Changed func()
	Kernel  *hostnet.Changes
	Log     *slog.Logger
}

// Gateway carries the pod network between this cluster and its peers. Its methods may be called at any time and
// from anywhere; peers set before Run has brought the device up, or while it is down, are applied then.
type Gateway struct {
	cfg   Config
	key   Key // the public one
	table atomic.Pointer[datapath.Table]
	drops datapath.Drops
	allUp atomic.Bool // all tunnels are up, so a handshake changes nothing
	soon  atomic.Bool // a check whether one came up is scheduled

	mu     sync.Mutex // guards what follows; the data path needs only what is above
	peers  map[string]*route
	gone   bool // a peer was removed whose tunnel was up, and Changed was not called for it yet
	around datapath.Host
	inUse  []netip.Prefix // by this host itself, when it was looked
	looked time.Time
	lapped map[string][]netip.Prefix // by peer ID: its ranges that this host used for something else at the last check
	live   *wireguard                // nil when the device is down
	off    string                    // why it is, if it could not be made

	wanted chan struct{} // has an item when a direct way is wanted, or answers
}

// route pairs a peer with the MTU towards it, whether its tunnel was up when it was looked at last, and what was heard of it.
type route struct {
	Peer
	mtu    int
	up     *atomic.Bool
	bytes  *datapath.Carried
	life   liveness
	whole  bool // WireGuard and the kernel have all of it
	direct []*directWay

	carrier *carrier // nil while none carries its packets
	found   found
	lost    bool // it had one in use that ended, and nothing came since it had received so many bytes
	lostAt  uint64
}

// New checks the configuration; nothing is touched before Run.
func New(cfg Config) (*Gateway, error) {
	switch {
	case cfg.Device == "" || len(cfg.Device) > 15:
		return nil, fmt.Errorf("gateway: device name %q must have 1 to 15 characters", cfg.Device)
	case !cfg.Address.Is4():
		return nil, fmt.Errorf("gateway: address %s is not IPv4", cfg.Address)
	case cfg.ListenPort == 0:
		return nil, errors.New("gateway: a UDP port is needed, for peers must find it again after a restart")
	case cfg.PrivateKey.IsZero():
		return nil, errors.New("gateway: no private key")
	case cfg.Log == nil:
		return nil, errors.New("gateway: no logger")
	}
	if cfg.IPv6 != (netplan.Cluster6{}) {
		if err := cfg.IPv6.Validate(); err != nil {
			return nil, fmt.Errorf("gateway: %w", err)
		}
	}
	g := &Gateway{cfg: cfg, key: cfg.PrivateKey.Public(), peers: map[string]*route{}, wanted: make(chan struct{}, 1)}
	g.around = datapath.Host{Self: cfg.Address, Port: cfg.ListenPort, Pods: []netip.Prefix{cfg.Pods}, Open: cfg.HostPorts}
	if g.six() {
		g.around.Self6, g.around.Pods = cfg.IPv6.Gateway(), append(g.around.Pods, cfg.IPv6.Pods)
	}
	g.table.Store(datapath.New(g.around, nil))
	return g, nil
}

// six reports whether this cluster has IPv6.
func (g *Gateway) six() bool { return g.cfg.IPv6 != netplan.Cluster6{} }

// PublicKey is what the peers need to know of us.
func (g *Gateway) PublicKey() Key { return g.key }

// SetPeer adds a peer or changes it. It may be repeated: what stays the same is not touched, so connections go on.
// With an endpoint given and the tunnel down, the handshake starts at once, and again soon if the peer does not know us yet. After an error from the kernel the peer is kept and tried again.
func (g *Gateway) SetPeer(p Peer) error {
	p.Endpoint = netip.AddrPortFrom(p.Endpoint.Addr().Unmap(), p.Endpoint.Port())
	if err := p.Validate(); err != nil {
		return fmt.Errorf("gateway: peer %s refused: %w", p.ID, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.PublicKey == g.PublicKey() {
		return fmt.Errorf("gateway: peer %s refused: it has our own WireGuard key", p.ID)
	}
	for id, q := range g.peers {
		if id == p.ID {
			continue
		}
		if err := p.conflicts(q.Peer); err != nil {
			return fmt.Errorf("gateway: peer %s refused: %w", p.ID, err)
		}
	}
	r := &route{mtu: DefaultMTU, up: new(atomic.Bool), bytes: new(datapath.Carried)}
	if old := g.peers[p.ID]; old != nil {
		*r = *old
	}
	same := r.whole && reflect.DeepEqual(r.Peer, p)
	if same && r.up.Load() {
		return nil
	}
	r.direct = g.keepDirect(r, p)
	r.Peer, r.whole = p, same
	g.peers[p.ID] = r
	if !same {
		g.rebuild()
	}
	if g.live == nil {
		return nil
	}
	if !same {
		if err := errors.Join(g.live.sync(g.remotes()), g.syncLocked()); err != nil {
			return fmt.Errorf("gateway: peer %s: %w", p.ID, err)
		}
		r.whole = true
	}
	g.greet(p)
	return nil
}

// RemovePeer ends the tunnel to a peer and takes its routes away. Unknown peers are no error.
func (g *Gateway) RemovePeer(id string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, ok := g.peers[id]
	if !ok {
		return nil
	}
	g.gone = g.gone || r.up.Load()
	delete(g.peers, id)
	g.rebuild()
	if g.live == nil {
		return nil
	}
	if err := errors.Join(g.live.sync(g.remotes()), g.syncLocked()); err != nil {
		return fmt.Errorf("gateway: remove peer %s: %w", id, err)
	}
	return nil
}

// Peer returns what was set last.
func (g *Gateway) Peer(id string) (Peer, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, ok := g.peers[id]; ok {
		return r.Peer, true
	}
	return Peer{}, false
}

// young is how old a look at what is in use on this host may be: a home with a hundred peers needs one for each of them, all at once.
const young = 100 * time.Millisecond

// Taken lists what a range for guests of or at peer id must not overlap: everything in use on this host, this cluster's own ranges, and those of
// the other peers. It is the argument taken of netplan.Choose.
func (g *Gateway) Taken(id string) ([]netip.Prefix, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.looked) > young {
		inUse, err := hostnet.InUse(g.cfg.Device, g.cfg.Guests)
		if err != nil {
			return nil, err
		}
		g.inUse, g.looked = inUse, time.Now()
	}
	out := append(append(slices.Clone(g.inUse), g.cfg.Pods), g.cfg.Reserved...)
	if g.six() {
		out = append(out, g.cfg.IPv6.Pods, g.cfg.IPv6.Services)
	}
	for _, r := range g.peers {
		if e := r.Endpoint.Addr().Unmap().WithZone(""); e.IsValid() {
			out = append(out, netip.PrefixFrom(e, e.BitLen()))
		}
		if r.ID != id {
			out = append(out, r.Ranges()...)
		}
	}
	return out, nil
}

// Overlapping lists the ranges of a peer that must be replaced, because this host's network, or a peer's endpoint, has such addresses.
func (g *Gateway) Overlapping(id string) []netip.Prefix {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lapped[id]
}

// Drops counts the packets that were not let through, by reason.
func (g *Gateway) Drops() map[string]uint64 { return g.drops.ByReason() }

// rebuild gives the data path a new table. Callers hold mu.
func (g *Gateway) rebuild() {
	all := make([]datapath.Peer, 0, len(g.peers))
	g.shareHandles()
	for _, r := range g.peers {
		all = append(all, datapath.Peer{ID: r.ID, Pair: r.Pair, MTU: r.mtu, Up: r.up, Carried: r.bytes, Direct: r.ways()})
	}
	g.table.Store(datapath.New(g.around, all))
	g.allUp.Store(false) // until they are looked at again
}

// Run brings the device up and keeps it so until ctx ends, which is no error. It may be called again after it
// returned. When it ends, the device and its routes are gone; nothing else stays behind.
func (g *Gateway) Run(ctx context.Context) error {
	w, err := g.open(ctx)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	defer g.tell()
	defer g.close(w)
	return g.watch(ctx, w)
}

func (g *Gateway) open(ctx context.Context) (*wireguard, error) {
	w, err := newWireGuard(ctx, g.cfg, &tap{table: &g.table, drops: &g.drops}, g.handshake)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.off = ""
	if err != nil {
		g.off = err.Error()
		return nil, err
	}
	if g.live != nil {
		w.close()
		return nil, errors.New("is already running")
	}
	g.live = w
	if err := w.sync(g.remotes()); err != nil {
		g.live = nil
		w.close()
		return nil, err
	}
	if err := g.syncLocked(); err != nil {
		g.cfg.Log.Warn("routes are not complete, trying again", "err", err)
	}
	for _, r := range g.peers {
		g.greet(r.Peer)
	}
	return w, nil
}

func (g *Gateway) close(w *wireguard) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live = nil
	w.close()
}

// resync is how often the state of the host is compared with what is wanted, for events that were missed.
const resync = 15 * time.Second
