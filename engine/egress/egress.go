// Package egress is the way from the API server to kubelets and pods as K3s has it, for a kith-k8s that stands in for K3s (package k3s): the
// API server dials nobody itself, it asks a proxy (egress selector, KEP-1281), and the proxy dials what belongs to a node through the tunnel
// that the node's agent keeps open to its server. A node that has none, as a virtual node has none, is not reached: 502.
//
// The server's own node has no need of a tunnel, and no other agent joins a stand-in: here no tunnel is ever open. So the package has the
// rules by which K3s takes one (k3s-io/k3s, pkg/daemons/control/tunnel.go), and not the tunnel.
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"kith.dev/engine/listener"
)

// The modes of --egress-selector-mode. For a cluster of one node Agent, Cluster and Pod do the same.
const (
	Disabled = "disabled"
	Agent    = "agent"
	Cluster  = "cluster"
	Pod      = "pod"
)

// Options say where things are.
type Options struct {
	Socket string // where the API server asks
	Node   string // the server's own
	Client kubernetes.Interface
}

// Proxy takes CONNECT requests of the API server.
type Proxy struct {
	opts     Options
	log      *slog.Logger
	listener net.Listener
	routes   routes
}

// Open listens. The API server need not be there yet.
func Open(o Options, log *slog.Logger) (*Proxy, error) {
	l, err := listener.Unix(o.Socket)
	if err != nil {
		return nil, fmt.Errorf("socket of the egress selector: %w", err)
	}
	return &Proxy{opts: o, log: log, listener: l, routes: routes{own: o.Node}}, nil
}

// WriteConfig writes what kube-apiserver's --egress-selector-config-file names.
func WriteConfig(path, socket string) error {
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`, socket)
	return os.WriteFile(path, []byte(text), 0o600)
}

// Watch learns the nodes' addresses until ctx ends.
func (p *Proxy) Watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(p.opts.Client, 0)
	see := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok {
			p.routes.see(node)
		}
	}
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, obj any) { see(obj) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// Run serves until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP joins the caller with whom it names, or answers 502.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "want CONNECT", http.StatusMethodNotAllowed)
		return
	}
	there, err := p.dial(r.Context(), r.RequestURI)
	if err != nil {
		p.log.Info("egress selector refuses", "to", r.RequestURI, "err", err)
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close()
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	var both sync.WaitGroup
	carry := func(to net.Conn, from io.Reader) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	both.Go(func() { carry(there, buffered) })
	both.Go(func() { carry(conn, there) })
	both.Wait()
}

func (p *Proxy) dial(ctx context.Context, address string) (net.Conn, error) {
	to, err := p.routes.route(address)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "tcp", to)
}
