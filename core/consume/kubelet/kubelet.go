package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kith.dev/core/consume/remote"
	"kith.dev/core/trust/audit"
)

const (
	// callTimeout bounds one request to the home API server.
	callTimeout = 15 * time.Second
	retryEvery  = time.Second

	// firstPort is the first that is tried; a kubelet of the same machine has 10250.
	firstPort  = 10260
	portsTried = 1000
)

// Config is what a Kubelet needs; all must be set.
type Config struct {
	// Home is the home cluster; HomeREST may approve certificate requests and impersonate.
	Home     kubernetes.Interface
	HomeREST *rest.Config
	// IP is what the home API server dials: the node's.
	IP netip.Addr
	// Listen is where such connections come in, if that is another address; the zero value is IP.
	Listen netip.Addr
	Log    *slog.Logger
	Audit  *audit.Log // of refusals
}

// Node is one of the virtual nodes; all must be set.
type Node struct {
	Name, Peer string
	// API is the peer's API server.
	API *remote.API
	// Pod gives the home pod on the node; nil when it is not there.
	Pod func(namespace, name string) *corev1.Pod
	// Pods gives all home pods on the node, in a slice of the caller's; nobody may change the pods.
	Pods func() []*corev1.Pod
	// Twin names the namespace at the peer that stands for one at home; empty when there is none yet.
	Twin func(namespace string) string
	// Usage asks the peer what the guests use, in one of the forms of remote.UsageMetrics and UsageSummary.
	Usage func(ctx context.Context, form string) ([]byte, error)
	Log   *slog.Logger

	spent cpuCount
}

// Kubelet is the HTTPS endpoint of all virtual nodes, on a port for each: the home API server dials it for the logs of
// pods, exec, attach and port-forward. That takes a client whose certificate comes from the cluster's client authority
// and whose user may use nodes/proxy. What pods use is also told to holders of a token who may read it, as the
// metrics-server does.
type Kubelet struct {
	cfg     Config
	server  *http.Server
	cert    *certificate
	clients *clientCA
	access  *access
	// life ends when Run does.
	life context.Context
	end  context.CancelFunc

	mu    sync.RWMutex
	nodes map[*Node]bool
	ports map[string]int32 // by name of the node
	ends  map[string]io.Closer
}

// New makes a Kubelet that listens nowhere yet.
func New(cfg Config) (*Kubelet, error) {
	if cfg.Home == nil || cfg.HomeREST == nil || cfg.Log == nil || !cfg.IP.IsValid() {
		return nil, errors.New("kubelet endpoint: Home, HomeREST, IP and Log must be set")
	}
	if !cfg.Listen.IsValid() {
		cfg.Listen = cfg.IP
	}
	rights := rest.CopyConfig(cfg.HomeREST)
	rights.Impersonate = rest.ImpersonationConfig{UserName: servingUser, Groups: []string{servingGroup, "system:authenticated"}}
	asNode, err := kubernetes.NewForConfig(rights)
	if err != nil {
		return nil, fmt.Errorf("kubelet endpoint: %w", err)
	}
	k := &Kubelet{
		cfg: cfg, nodes: map[*Node]bool{}, ports: map[string]int32{}, ends: map[string]io.Closer{},
		cert:    &certificate{home: cfg.Home, asNode: asNode, ip: cfg.IP, log: cfg.Log},
		clients: &clientCA{home: cfg.Home, log: cfg.Log},
		access:  newAccess(cfg.Home),
	}
	k.life, k.end = context.WithCancel(context.Background())
	k.server = &http.Server{
		Handler:           k.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          log.New(handshakeLog{cfg.Audit, cfg.Log}, "", 0),
		// "Connection: Upgrade" exists in HTTP/1.1 only.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		BaseContext:  func(net.Listener) context.Context { return k.life }, // ends the streams too
	}
	return k, nil
}

// Port is where the API of that node is served until Close, the first port that was free when it was asked for first. A request says
// which node it means by nothing but the port.
func (k *Kubelet) Port(node string) (int32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if port, ok := k.ports[node]; ok {
		return port, nil
	}
	var listener net.Listener
	var err error
	for port := firstPort; port < firstPort+portsTried; port++ {
		listener, err = net.Listen("tcp", net.JoinHostPort(k.cfg.Listen.String(), strconv.Itoa(port)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("kubelet endpoint of node %s on %s, ports %d to %d: %w",
			node, k.cfg.Listen, firstPort, firstPort+portsTried-1, err)
	}
	go func() {
		if err := k.server.Serve(tls.NewListener(listener, k.tls())); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			k.cfg.Log.Error("kubelet endpoint ended", "node", node, "err", err)
		}
	}()
	k.ports[node] = int32(listener.Addr().(*net.TCPAddr).Port)
	k.ends[node] = listener
	return k.ports[node], nil
}

// Close ends that, and frees the port; streams that are open go on until their pod or the contract ends. A node that has no port is no error.
func (k *Kubelet) Close(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if listener := k.ends[node]; listener != nil {
		_ = listener.Close() // nobody can be told, and the port is forgotten
	}
	delete(k.ends, node)
	delete(k.ports, node)
}

// Add makes the pods of a node reachable.
func (k *Kubelet) Add(n *Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[n] = true
}

// Remove ends that; streams that are open go on until their pod or the contract ends.
func (k *Kubelet) Remove(n *Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.nodes, n)
}

// Run serves until ctx ends, once. Until the cluster has signed its certificate, handshakes fail.
func (k *Kubelet) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.cert.run(ctx) })
	group.Go(func() error { return k.clients.run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		k.end()
		return k.server.Close()
	})
	return group.Wait()
}

// Reasons of refusals (audit.Refusal).
const (
	RefusedHandshake audit.Reason = "handshake" // no certificate of the cluster's client authority
	RefusedNobody    audit.Reason = "nobody"    // no certificate at all, nor a token where that is enough
	RefusedUser      audit.Reason = "user"      // it may not use nodes/proxy, nodes/metrics or nodes/stats
)

// handshakeLog takes what the http server says; what it says of handshakes is a refusal.
type handshakeLog struct {
	audits *audit.Log
	log    *slog.Logger
}

func (h handshakeLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if rest, ok := strings.CutPrefix(text, "http: TLS handshake error from "); ok {
		from, why, _ := strings.Cut(rest, ": ")
		addr, _ := netip.ParseAddrPort(from) // left out when it is none
		h.audits.Note(audit.Refusal{Door: audit.Kubelet, Reason: RefusedHandshake, Addr: addr, What: "connection", Why: why})
		return len(line), nil
	}
	h.log.Debug("kubelet endpoint: " + text)
	return len(line), nil
}

func (k *Kubelet) tls() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Both change while it runs.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pool := k.clients.current.Load()
			if pool == nil {
				return nil, errors.New("the cluster's client authority is not known yet")
			}
			return &tls.Config{
				MinVersion:     tls.VersionTLS12,
				NextProtos:     []string{"http/1.1"},
				ClientAuth:     tls.VerifyClientCertIfGiven, // the handlers want one, or a token
				ClientCAs:      pool,
				GetCertificate: k.cert.get,
			}, nil
		},
	}
}

// node finds the node on which that home pod runs.
func (k *Kubelet) node(namespace, pod string) *Node {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for n := range k.nodes {
		if n.Pod(namespace, pod) != nil {
			return n
		}
	}
	return nil
}

// nodeAt finds the node whose port the request came to.
func (k *Kubelet) nodeAt(r *http.Request) *Node {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return nil
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	for n := range k.nodes {
		if k.ports[n.Name] == int32(at.Port) {
			return n
		}
	}
	return nil
}

func (k *Kubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.relay("log", logQuery))
	for _, method := range []string{"GET ", "POST "} { // websocket, SPDY
		mux.HandleFunc(method+"/exec/{namespace}/{pod}/{container}", k.relay("exec", streamQuery))
		mux.HandleFunc(method+"/attach/{namespace}/{pod}/{container}", k.relay("attach", streamQuery))
		mux.HandleFunc(method+"/portForward/{namespace}/{pod}", k.relay("portforward", portQuery))
	}
	mux.HandleFunc("GET /pods", k.tellPods(every))
	mux.HandleFunc("GET /runningpods/{$}", k.tellPods(runs))
	mux.HandleFunc("GET /metrics/resource", k.tellUsage("metrics", (*Node).metrics))
	mux.HandleFunc("GET /stats/summary", k.tellUsage("stats", (*Node).summary))
	return mux
}
