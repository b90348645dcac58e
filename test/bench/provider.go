package main

import (
	"context"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/consume/remote"
	"kith.dev/core/net/netplan"
	"kith.dev/core/trust/contract"
	"kith.dev/core/trust/identity"
)

// provider is a simulated one: the protocol and the tunnel are real, and so is the API server it leads to, which all of
// them share with bob. It accepts whatever it is asked, and runs nothing.
type provider struct {
	name, address string
	me            *identity.Identity
	key           *ecdh.PrivateKey
	port          uint16       // UDP
	guests        netip.Prefix // of the consumer
	wireguard     *device.Device
	twins         atomic.Int32
	stop          context.CancelFunc
	served        chan error

	mu     sync.Mutex
	asked  peering.Question
	signed *contract.Document
	homes  map[string]string // by twin
	news   chan struct{}     // closed, and made anew, when homes changed
}

func (r *rig) simulate(ctx context.Context, number int, dir string) (p *provider, err error) {
	p = &provider{name: fmt.Sprintf("sim-%d", number), port: uint16(7100 + number),
		guests: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(number), 0}), netplan.GuestBits), served: make(chan error, 1), homes: map[string]string{}, news: make(chan struct{})}
	if p.me, err = identity.Load(filepath.Join(dir, p.name)); err != nil {
		return nil, err
	}
	if p.key, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
		return nil, err
	}
	at, err := r.bob.Address()
	if err != nil {
		return nil, err
	}
	p.address = netip.AddrPortFrom(at, p.port).String()
	var listener net.Listener
	err = r.bob.InNetwork(func() (err error) {
		if listener, err = net.Listen("tcp", p.address); err == nil {
			err = p.tunnel()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", p.name, err)
	}
	log := slog.New(slog.DiscardHandler)
	server := peering.NewServer(peering.ServerConfig{Identity: p.me, Name: func() string { return p.name }, Version: "simulated", Handler: p, Log: log})
	if err := p.lead(server, r.bob); err != nil {
		return nil, err
	}
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() { p.served <- server.Serve(ctx, listener) }()
	return p, nil
}

func (p *provider) close() {
	p.stop()
	<-p.served
	p.wireguard.Close()
}

// tunnel opens the WireGuard end. Its socket belongs to the network of the thread that opens it.
func (p *provider) tunnel() error {
	inside := tuntest.NewChannelTUN()
	go func() {
		for range inside.Inbound { // nobody takes what comes
		}
	}()
	p.wireguard = device.NewDevice(inside.TUN(), conn.NewStdNetBind(), device.NewLogger(device.LogLevelSilent, ""))
	if err := p.wireguard.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=%d\n", hex.EncodeToString(p.key.Bytes()), p.port)); err != nil {
		return err
	}
	return p.wireguard.Up()
}

// lead adds the way to bob's API server, and the namespaces.
func (p *provider) lead(server *peering.Server, bob *node) error {
	to, err := url.Parse(bob.config.Host)
	if err != nil {
		return err
	}
	transport, err := rest.TransportFor(bob.config)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Transport: transport, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	server.Handle("/kube/", func(w http.ResponseWriter, r *http.Request, _ peering.Caller) {
		http.StripPrefix("/kube", proxy).ServeHTTP(w, r)
	})
	server.Handle("GET /kith/v2/view", p.view)
	server.Handle("PUT /kith/v2/namespaces/{home}", func(w http.ResponseWriter, r *http.Request, _ peering.Caller) {
		twin := p.name + "-" + r.PathValue("home")
		_, err := bob.kube.CoreV1().Namespaces().Create(r.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: twin}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		p.twins.Add(1)
		p.show(twin, r.PathValue("home"))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"namespace": twin})
	})
	server.Handle("DELETE /kith/v2/namespaces/{home}", func(w http.ResponseWriter, r *http.Request, _ peering.Caller) {
		_ = bob.kube.CoreV1().Namespaces().Delete(r.Context(), p.name+"-"+r.PathValue("home"), metav1.DeleteOptions{})
		w.WriteHeader(http.StatusNoContent)
	})
	return nil
}

// show has the namespace in the views.
func (p *provider) show(twin, home string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.homes[twin] = home
	close(p.news)
	p.news = make(chan struct{})
}

// view tells of the namespaces, in which nothing ever happens.
func (p *provider) view(w http.ResponseWriter, r *http.Request, _ peering.Caller) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := json.NewEncoder(w)
	for synced := false; r.Context().Err() == nil; synced = true {
		p.mu.Lock()
		homes, news := maps.Clone(p.homes), p.news
		p.mu.Unlock()
		for twin, home := range homes {
			ns := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: twin, Labels: map[string]string{v1alpha1.LabelHomeNamespace: home}}}
			_ = out.Encode(map[string]any{"kind": remote.KindNamespace, "object": ns}) // when it fails the context has ended
		}
		if !synced {
			_ = out.Encode(map[string]any{"kind": remote.KindSynced})
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-news:
		case <-r.Context().Done():
		}
	}
}

// The methods below make it a peering.Handler.

func (p *provider) Recognise(context.Context, peering.Caller) bool { return true }

func (p *provider) Compared(context.Context, peering.Caller) bool { return true }

func (p *provider) Tether(context.Context, peering.Caller) (peering.Tether, error) {
	return peering.Tether{Answer: peering.TetherNo}, nil
}

func (p *provider) BeginTether(context.Context, peering.Caller) (peering.Tether, error) {
	return peering.Tether{}, peering.Refuse(peering.CodeForbidden, "it runs no laptops", "")
}

func (p *provider) EndTether(context.Context, peering.Caller) error { return nil }

func (p *provider) Ask(_ context.Context, _ peering.Caller, q peering.Question, _ string, _ bool) (string, time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = q
	return "question", time.Now().Add(time.Minute), nil
}

func (p *provider) Outcome(context.Context, peering.Caller, string) (peering.Outcome, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return peering.Outcome{State: peering.OutcomeAccepted, Offer: &peering.Offer{
		Terms:      contract.Terms{Resources: p.asked.Resources, PodSecurity: contract.Baseline},
		ValidUntil: time.Now().Add(time.Minute), ValidFor: int64(24 * time.Hour / time.Second),
	}}, nil
}

func (p *provider) WouldGive(context.Context, peering.Caller) (peering.Supply, error) {
	return peering.Supply{State: peering.SupplyNothing}, nil
}

func (p *provider) Withdraw(context.Context, peering.Caller, string, bool) error { return nil }

func (p *provider) Sign(_ context.Context, _ peering.Caller, s contract.Signed) (contract.Signed, error) {
	d, err := contract.Parse(s.Document)
	if err != nil {
		return s, err
	}
	p.mu.Lock()
	p.signed = &d
	p.mu.Unlock()
	return s, s.SignAs(contract.Provider, p.me)
}

func (p *provider) Contracts(context.Context, peering.Caller) ([]peering.ContractRef, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.signed == nil {
		return nil, nil
	}
	return []peering.ContractRef{{ID: p.signed.ID, Revision: p.signed.Revision, Role: contract.Provider, State: api.StateConnected}}, nil
}

func (p *provider) End(context.Context, peering.Caller, string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signed = nil
	return nil
}

func (p *provider) Link(_ context.Context, caller peering.Caller, theirs peering.Link) (peering.Link, error) {
	usual := netplan.Usual()
	ours := peering.Link{
		PublicKey: base64.StdEncoding.EncodeToString(p.key.PublicKey().Bytes()), Port: int(p.port), Plan: peering.LinkPlan,
		Space: []netip.Prefix{usual.Pods}, Services: usual.Services, At: usual.Gateway(), Here: theirs.There, There: theirs.Here,
	}
	if !ours.Here.IsValid() {
		ours.Here = p.guests
	}
	ours.AtHere = netplan.GuestGateway(ours.Here)
	key, err := base64.StdEncoding.DecodeString(theirs.PublicKey)
	if err != nil {
		return ours, err
	}
	if ours.Binding, err = p.bind(caller.ID, theirs.PublicKey, key); err != nil {
		return ours, err
	}
	return ours, p.wireguard.IpcSet(fmt.Sprintf("public_key=%s\nendpoint=%s\nreplace_allowed_ips=true\nallowed_ip=%s\n",
		hex.EncodeToString(key), netip.AddrPortFrom(caller.Addr.Addr().Unmap(), uint16(theirs.Port)), netip.PrefixFrom(netplan.Pair{Here: ours.Here, There: ours.There}.Handle(), 32)))
}

// bind says that the WireGuard key is this provider's own, as core/agree/relations/link does and gateway.Prove.
func (p *provider) bind(to identity.ID, theirs string, key []byte) (*peering.Binding, error) {
	me := p.me.ID()
	said := slices.Concat([]byte("kith link v2: this WireGuard key is mine\x00"), me[:], to[:], p.key.PublicKey().Bytes(), key)
	other, err := ecdh.X25519().NewPublicKey(key)
	if err != nil {
		return nil, err
	}
	shared, err := p.key.ECDH(other)
	if err != nil {
		return nil, err
	}
	secret, err := hkdf.Key(sha256.New, shared, nil, "kith: a statement between the holders of two WireGuard keys, v1", sha256.Size)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(said)
	return &peering.Binding{PeerKey: theirs, Signature: p.me.Sign(said), Proof: mac.Sum(nil)}, nil
}

func (p *provider) Notices(context.Context, peering.Caller) <-chan peering.Notice { return nil }
