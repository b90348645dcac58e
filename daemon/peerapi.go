package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/receipts"
	"kith.dev/core/agree/relations/provider"
	"kith.dev/core/agree/relations/waking"
	"kith.dev/core/base/version"
	"kith.dev/core/consume/clusterset"
	"kith.dev/core/consume/custom"
	giving "kith.dev/core/consume/images"
	"kith.dev/core/consume/netpolicy"
	"kith.dev/core/consume/remote"
	"kith.dev/core/local/apiproxy"
	"kith.dev/core/mode/company"
	"kith.dev/core/provide/hosting"
	"kith.dev/core/trust/contract"
	"kith.dev/daemon/config"
)

// openPeerAPI takes the port of the peer API; nobody is answered yet.
func (d *Daemon) openPeerAPI() (err error) {
	host := ""
	if d.cfg.ListenAddress.IsValid() {
		host = d.cfg.ListenAddress.String()
	}
	d.peersAt, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(d.cfg.PeerAPIPort))))
	if err != nil {
		return fmt.Errorf("open the peer API: %w (another program has the port? set peerAPIPort)", err)
	}
	d.peerAPI = peering.NewServer(peering.ServerConfig{
		Identity: d.me, Name: func() string { return d.cfg.Name }, Version: version.Version, Handler: handler{d}, Log: d.log, Answered: d.metrics.Answered,
		Audit: d.audits, Answer: answerProblem, Beat: d.beat, Woke: d.woke, LastWord: d.lastWord, Takes: d.cfg.Relay != config.RelayNone, Relays: d.cfg.Relay == config.RelayOffer,
	})
	d.makePortMapping()
	d.makeRelay()
	d.backend.Relay, d.backend.Ports = d.relay, d.ports
	d.hostingRoutes()
	d.catalogueRoutes()
	return nil
}

// hostingRoutes adds what hosting answers to the peer API.
func (d *Daemon) hostingRoutes() {
	add := func(route string, serve func(*clusterPart, http.ResponseWriter, *http.Request, string)) {
		d.peerAPI.Handle(route, func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
			c := d.cluster.Load()
			if c == nil {
				answerProblem(w, r, errNotReady)
				return
			}
			serve(c, w, r, caller.ID.String())
		})
	}
	for route, serve := range map[string]func(*hosting.Host, http.ResponseWriter, *http.Request, string){
		"PUT /kith/v2/namespaces/{home}": (*hosting.Host).PutNamespace, "DELETE /kith/v2/namespaces/{home}": (*hosting.Host).DeleteNamespace,
		"PUT " + remote.ClaimPath: (*hosting.Host).PutClaim, "DELETE " + remote.ClaimPath: (*hosting.Host).DeleteClaim, "POST " + remote.CopyPath: (*hosting.Host).CopyClaim,
		"PUT " + remote.SnapshotPath: (*hosting.Host).PutSnapshot, "DELETE " + remote.SnapshotPath: (*hosting.Host).DeleteSnapshot,
		"POST " + custom.Path: (*hosting.Host).ServeObjects, "POST " + clusterset.Path: (*hosting.Host).ServeServices,
		"PUT " + netpolicy.Path: (*hosting.Host).PutPolicies, "GET /kith/v2/view": (*hosting.Host).GetView,
		"GET /kith/v2/usage": (*hosting.Host).GetUsage, "GET /kith/v2/machine": (*hosting.Host).GetMachine,
	} {
		add(route, func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { serve(c.Host, w, r, id) })
	}
	d.peerAPI.Handle("POST "+receipts.Path, d.serveReceipts)
	add(company.Path, func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { c.company.Serve(w, r, id) })
	add("GET "+giving.Path, d.giveImages)
	add("GET "+giving.HeldPath+"{digest}", d.heldImage)
	d.peerAPI.Handle("POST "+waking.Path, func(w http.ResponseWriter, r *http.Request, caller peering.Caller) {
		if c := d.cluster.Load(); c != nil {
			c.Waking.ServeHTTP(w, r, caller)
			return
		}
		answerProblem(w, r, errNotReady)
	})
	add("/kube/", func(c *clusterPart, w http.ResponseWriter, r *http.Request, id string) { c.door.Serve(w, r, id) })
}

// answerProblem writes what the peer API refuses; Kubernetes clients understand a Status.
func answerProblem(w http.ResponseWriter, r *http.Request, problem *peering.Problem) {
	if strings.HasPrefix(r.URL.Path, "/kube/") || strings.HasPrefix(r.URL.Path, company.Path) {
		apiproxy.Refuse(w, problem.HTTPStatus(), problem.Error())
		return
	}
	peering.WriteProblem(w, problem)
}

// heard has the books compared when a peer tells that something changed.
func (d *Daemon) heard(ctx context.Context) error {
	for {
		select {
		case h := <-d.contacts.Notices():
			c := d.cluster.Load()
			k, err := d.directory.Find(h.ID.String())
			if c == nil || err != nil || k.Peer == nil {
				continue
			}
			switch h.Notice.Type {
			case peering.NoticeReceipt:
				d.receipts.Told(h.Notice.Contract)
			case peering.NoticeContractEnded:
				c.peers.Told(ctx, k.Peer.Name, h.Notice)
			case peering.NoticeContractLowered:
				c.peers.Compare(k.Peer.Name)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

var errNotReady = &peering.Problem{Code: peering.CodeUnavailable, Message: "the Kubernetes of this laptop is not ready", Do: "try again in a moment"}

// handler answers peers by the Provider, as soon as there is a cluster to answer from.
type handler struct{ d *Daemon }

var _ peering.Handler = handler{}

// by has the Provider of now answer.
func by[T any](h handler, answer func(*provider.Provider) (T, error)) (none T, err error) {
	if c := h.d.cluster.Load(); c != nil {
		return answer(c.Provider)
	}
	return none, errNotReady
}

func (h handler) Recognise(ctx context.Context, caller peering.Caller) bool {
	known, _ := by(h, func(p *provider.Provider) (bool, error) { return p.Recognise(ctx, caller), nil })
	if known {
		h.d.directory.Called(caller.ID, caller.Addr.Addr())
	}
	return known
}

func (h handler) Compared(ctx context.Context, caller peering.Caller) bool {
	compared, _ := by(h, func(p *provider.Provider) (bool, error) { return p.Compared(ctx, caller), nil })
	return compared
}

func (h handler) WouldGive(ctx context.Context, caller peering.Caller) (peering.Supply, error) {
	return by(h, func(p *provider.Provider) (peering.Supply, error) { return p.WouldGive(ctx, caller) })
}

func (h handler) Ask(ctx context.Context, caller peering.Caller, q peering.Question, code string, compare bool) (id string, expires time.Time, err error) {
	id, err = by(h, func(p *provider.Provider) (id string, err error) {
		id, expires, err = p.Ask(ctx, caller, q, code, compare)
		return id, err
	})
	return id, expires, err
}

func (h handler) Outcome(ctx context.Context, caller peering.Caller, id string) (peering.Outcome, error) {
	return by(h, func(p *provider.Provider) (peering.Outcome, error) { return p.Outcome(ctx, caller, id) })
}

func (h handler) Withdraw(ctx context.Context, caller peering.Caller, id string, mismatch bool) error {
	_, err := by(h, func(p *provider.Provider) (any, error) { return nil, p.Withdraw(ctx, caller, id, mismatch) })
	return err
}

func (h handler) Sign(ctx context.Context, caller peering.Caller, signed contract.Signed) (contract.Signed, error) {
	return by(h, func(p *provider.Provider) (contract.Signed, error) { return p.Sign(ctx, caller, signed) })
}

func (h handler) Contracts(ctx context.Context, caller peering.Caller) ([]peering.ContractRef, error) {
	return by(h, func(p *provider.Provider) ([]peering.ContractRef, error) { return p.Contracts(ctx, caller) })
}

func (h handler) End(ctx context.Context, caller peering.Caller, id string) error {
	_, err := by(h, func(p *provider.Provider) (any, error) { return nil, p.End(ctx, caller, id) })
	return err
}

func (h handler) Link(ctx context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	return by(h, func(p *provider.Provider) (peering.Link, error) { return p.Link(ctx, caller, theirs) })
}

// Notices go to streams that may be older than the cluster part: the stream of a peer is open from the moment it
// sees this laptop. A peer that opens one is there, so it is looked for at once: whichever side finds the other first
// after a cut ends the waiting of both.
func (h handler) Notices(ctx context.Context, caller peering.Caller) <-chan peering.Notice {
	h.d.contacts.Poke(caller.ID)
	return h.d.notices.Subscribe(ctx, caller.ID)
}

func (h handler) Tether(ctx context.Context, caller peering.Caller) (peering.Tether, error) {
	if c := h.d.cluster.Load(); c != nil {
		return c.company.Tether(ctx, caller)
	}
	return peering.Tether{}, errNotReady
}

func (h handler) BeginTether(ctx context.Context, caller peering.Caller) (peering.Tether, error) {
	if c := h.d.cluster.Load(); c != nil {
		return c.company.BeginTether(ctx, caller)
	}
	return peering.Tether{}, errNotReady
}

func (h handler) EndTether(ctx context.Context, caller peering.Caller) error {
	if c := h.d.cluster.Load(); c != nil {
		return c.company.EndTether(ctx, caller)
	}
	return errNotReady
}
