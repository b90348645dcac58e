package exports

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"kith.dev/core/agree/ledger"
	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/relations/link"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/notify"
	"kith.dev/core/consume/clusterset"
	"kith.dev/core/provide/hosting/door"
	"kith.dev/core/provide/hosting/grants"
)

const (
	// askWithin is how long a consumer may take to say what it asks for, and writeTimeout to hear a line.
	askWithin    = 10 * time.Second
	writeTimeout = 30 * time.Second
	// askRate is how often a second a consumer may ask for something else, each of which is a few writes and routes here, and askBurst how often at once.
	askRate, askBurst = 0.5, 20
	// retry is when pods that could not be shared are shared again.
	retry = 2 * time.Second
)

// Grants says who may ask. *grants.Contracts is one.
type Grants interface {
	// Held gives the terms of a contract in force with the consumer.
	Held(ctx context.Context, contractID, consumerID string) (*grants.Terms, error)
	// Of gives the terms of a contract now; nil when there are none.
	Of(contractID string) *grants.Terms
}

// Own is what this cluster exports. *clusterset.Set is one.
type Own interface {
	Exports() (list []*clusterset.Export, known bool)
	Changed() <-chan struct{}
}

// Share has a peer reach pods of this cluster, and gives the addresses by which it does. link.Linker.Share is one.
type Share func(ctx context.Context, peerID string, pods []v1alpha1.SharedPod) (map[netip.Addr]netip.Addr, error)

// Config is what Exports need; all must be set.
type Config struct {
	Own   Own
	Share Share
	// Mine reports whether an address is that of a pod of this cluster, and not of one of its nodes.
	Mine   func(netip.Addr) bool
	Ledger *ledger.Ledger
	Log    *slog.Logger
}

// Exports tells all consumers. Nobody is told anything before RunExports.
type Exports struct {
	cfg    Config
	grants Grants

	asked  notify.Broadcast // somebody asks for something else
	viewed notify.Broadcast // somebody is to be told something else

	mu    sync.Mutex
	asks  map[string][]string // what consumers asked for last
	views map[string]view     // what they may have
	conns map[string]net.Conn // one each, the last one
	paces map[string]*rate.Limiter
}

// view is what a consumer may have of what it asked for.
type view struct {
	patterns []string
	exports  map[clusterset.Name]clusterset.Export // with its addresses
}

// New makes Exports for consumers with these contracts.
func New(grants Grants) *Exports {
	return &Exports{grants: grants, asks: map[string][]string{}, views: map[string]view{}, conns: map[string]net.Conn{}, paces: map[string]*rate.Limiter{}}
}

// ExportBy says how. Call it before anybody is served.
func (e *Exports) ExportBy(cfg Config) { e.cfg = cfg }

// RunExports works until ctx ends.
func (e *Exports) RunExports(ctx context.Context) error {
	for {
		changed, asked := e.cfg.Own.Changed(), e.asked.Wait()
		var again <-chan time.Time
		if !e.look(ctx) {
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-asked:
		case <-again:
		}
	}
}

// look brings what consumers reach, and may be told, in step with what is exported and who may have it. False: not all of it worked.
func (e *Exports) look(ctx context.Context) (all bool) {
	now := e.cfg.Ledger.Now()
	all = true
	own, known := e.cfg.Own.Exports()
	slices.SortFunc(own, func(a, b *clusterset.Export) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name.Name, b.Name.Name))
	})
	for _, peer := range now.Peers {
		id, policy := peer.Spec.ID, sharing.Services(sharing.Select(now.Policies, peer))
		e.mu.Lock()
		patterns, asked := e.asks[id]
		was, viewed := e.views[id]
		e.mu.Unlock()
		if !linked(now, peer) {
			e.drop(id)
			continue
		}
		if !asked && (len(policy) > 0 || peer.Status.Network == nil || len(peer.Status.Network.Shared) == 0) {
			continue // what it asked for before this process started, it asks for again
		}
		if !known && len(policy) > 0 {
			continue // it says when it is; that the owner has taken his word back holds without
		}
		list := slices.DeleteFunc(slices.Clone(own), func(x *clusterset.Export) bool { return !sharing.Common(x.Namespace, policy, patterns) })
		if len(list) > clusterset.MaxServices {
			e.cfg.Log.Warn("a peer may have more services than can be told; the last by name are left out", "peer", peer.Name, "exported", len(list), "most", clusterset.MaxServices)
			list = list[:clusterset.MaxServices]
		}
		at, err := e.cfg.Share(ctx, id, e.podsOf(list))
		if err != nil {
			all = all && errors.Is(err, link.ErrNoRoom)
			e.cfg.Log.Warn("not all pods behind services are shared", "peer", peer.Name, "err", err)
			if at == nil {
				continue
			}
		}
		is := view{patterns, e.seen(list, at)}
		if !asked || viewed && reflect.DeepEqual(was, is) {
			continue
		}
		e.mu.Lock()
		e.views[id] = is
		e.mu.Unlock()
		e.viewed.Notify()
	}
	return all
}

// linked reports whether a peer consumes here by a contract with a network.
func linked(now *ledger.Snapshot, peer *v1alpha1.Peer) bool {
	return slices.ContainsFunc(now.With(peer.Name, v1alpha1.RoleProvider), func(c *v1alpha1.Contract) bool { return c.DeletionTimestamp == nil && !sharing.NoNetwork(c) })
}

// drop forgets a peer to which no pods are shared any more.
func (e *Exports) drop(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.asks, id)
	delete(e.views, id)
}

// podsOf are the pods behind exports, each with all ports of it that are behind one.
func (e *Exports) podsOf(list []*clusterset.Export) (pods []v1alpha1.SharedPod) {
	ports := map[netip.Addr][]v1alpha1.SharedPort{}
	for _, x := range list {
		for _, s := range x.Slices {
			for _, p := range s.Endpoints {
				if !e.cfg.Mine(p.Address) {
					continue
				}
				for _, port := range s.Ports {
					ports[p.Address] = append(ports[p.Address], v1alpha1.SharedPort{Protocol: port.Protocol, Port: port.Port})
				}
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(ports), netip.Addr.Compare) {
		pods = append(pods, v1alpha1.SharedPod{Pod: a.String(), Ports: ports[a]})
	}
	return pods
}

// seen are exports with the addresses that their consumer has for the pods. Other endpoints are left out, and those that are too many.
func (e *Exports) seen(list []*clusterset.Export, at map[netip.Addr]netip.Addr) map[clusterset.Name]clusterset.Export {
	out := map[clusterset.Name]clusterset.Export{}
	for _, x := range list {
		is := *x
		is.Slices = nil
		room := clusterset.MaxEndpoints
		for _, s := range x.Slices[:min(len(x.Slices), clusterset.MaxSlices)] {
			there := clusterset.Slice{Ports: s.Ports}
			for _, p := range s.Endpoints {
				a, shared := at[p.Address]
				if !shared || !e.cfg.Mine(p.Address) || room == 0 {
					continue
				}
				room--
				p.Address = a
				there.Endpoints = append(there.Endpoints, p)
			}
			is.Slices = append(is.Slices, there)
		}
		out[is.Name] = is
	}
	return out
}

// ServeServices answers POST clusterset.Path?contract=ID, an upgrade. It returns when the connection, or the contract, ends.
func (e *Exports) ServeServices(w http.ResponseWriter, r *http.Request, consumerID string) {
	terms, err := e.grants.Held(r.Context(), r.URL.Query().Get("contract"), consumerID)
	if err != nil {
		door.Answer(e.cfg.Log, w, struct{}{}, err)
		return
	}
	now := e.cfg.Ledger.Now()
	if peer := now.Peer(consumerID); peer == nil || !linked(now, peer) {
		door.Answer(e.cfg.Log, w, struct{}{}, peering.Refuse(peering.CodeForbidden, "there is no network between the clusters by which services could be reached", ""))
		return
	}
	conn, err := peering.Upgraded(w, r, clusterset.Protocol)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(askWithin))
	ask, err := clusterset.ReadAsk(conn)
	if err != nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	if e.pace(consumerID).Wait(r.Context()) != nil {
		return
	}
	e.begin(consumerID, ask.Namespaces, conn)
	defer e.leave(consumerID, conn)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() { // nothing more is said: when this ends, so did the connection
		defer cancel()
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1))
	}()
	e.tell(ctx, conn, consumerID, terms.Contract, ask.Namespaces)
}

// pace is that of a consumer, whatever connections it opens.
func (e *Exports) pace(consumerID string) *rate.Limiter {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paces[consumerID] == nil {
		e.paces[consumerID] = rate.NewLimiter(askRate, askBurst)
	}
	return e.paces[consumerID]
}

// begin notes what a consumer asks for. An earlier connection of it ends: whoever opens another has lost it.
func (e *Exports) begin(consumerID string, patterns []string, conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.conns[consumerID]; old != nil {
		old.Close()
	}
	e.conns[consumerID] = conn
	if was, asked := e.asks[consumerID]; !asked || !slices.Equal(was, patterns) {
		e.asks[consumerID] = patterns
		e.asked.Notify()
	}
}

func (e *Exports) leave(consumerID string, conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conns[consumerID] == conn {
		delete(e.conns, consumerID)
	}
}

// ShutServices ends the connection of a consumer that has no contract in force any more.
func (e *Exports) ShutServices(consumerID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if conn := e.conns[consumerID]; conn != nil {
		conn.Close()
	}
}

// tell tells a consumer what it may have, and what changes of that.
func (e *Exports) tell(ctx context.Context, conn net.Conn, consumerID, contract string, patterns []string) {
	told, synced := map[clusterset.Name]clusterset.Export{}, false
	say := func(line clusterset.Tell) bool {
		raw, err := clusterset.Line(line)
		if err != nil {
			e.cfg.Log.Warn("a service cannot be told", "peer", consumerID, "err", err)
			return true
		}
		conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		_, err = conn.Write(raw)
		return err == nil
	}
	for {
		viewed := e.viewed.Wait()
		e.mu.Lock()
		is, there := e.views[consumerID]
		e.mu.Unlock()
		if !e.grants.Of(contract).InForce(time.Now()) {
			return
		}
		if there && slices.Equal(is.patterns, patterns) {
			for name := range told {
				if _, still := is.exports[name]; !still {
					if !say(clusterset.Tell{Gone: &name}) {
						return
					}
					delete(told, name)
				}
			}
			for name, x := range is.exports {
				if was, had := told[name]; had && reflect.DeepEqual(was, x) {
					continue
				}
				if !say(clusterset.Tell{Export: &x}) {
					return
				}
				told[name] = x
			}
			if !synced && !say(clusterset.Tell{Synced: true}) {
				return
			}
			synced = true
		}
		select {
		case <-ctx.Done():
			return
		case <-viewed:
		}
	}
}
