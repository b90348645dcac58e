// Package dns is the cluster's DNS: CoreDNS with six plugins and two of our own inside this process, listening on the node's
// address; a Service leads to it. Names outside the cluster go to the laptop's own servers, whichever they
// are at the moment.
//
// It needs no pod and no image, so names resolve as soon as the API server answers.
package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Options say where the server listens and whom it asks.
type Options struct {
	NodeIP     netip.Addr
	Port       int
	ClusterDNS netip.Addr
	Kubeconfig string
	Pods       netip.Prefix // of this cluster; to guests, pods of other clusters, its addresses are somebody else's
	ClusterID  string       // of this cluster, in its compact form: its namespaces at peers have the start of it in their names
	ResolvConf string       // written: the laptop's servers, as pods can use them
}

// look is how often the laptop's resolv.conf is read again: a few hundred bytes, when it moved to another LAN.
const look = 5 * time.Second

// WriteResolvConf writes ResolvConf as it stands now. The kubelet wants it to be there.
func WriteResolvConf(o Options) error {
	return os.WriteFile(o.ResolvConf, []byte(o.upstreams().String()), 0o644)
}

// KeepResolvConf keeps ResolvConf as the machine's own servers are, until ctx ends. It is for a node without a DNS server of its own.
func KeepResolvConf(ctx context.Context, o Options, log *slog.Logger) error {
	last := o.upstreams().String()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := o.upstreams().String()
		if now == last {
			continue
		}
		if err := WriteResolvConf(o); err != nil {
			log.Warn("pods with the host's DNS keep asking the old servers", "err", err)
			continue
		}
		last = now
	}
}

// directives in the order in which a question passes them. What guests mean is found out before anything is cached. Addresses are given by
// turns (loadbalance), as every cluster's DNS does: a client that takes the first one only must not meet the same dead pod each time.
var directives = []string{"bind", "errors", "limits", "tenants", "loadbalance", "cache", "podnames", "kubernetes", handBack, "forward"}

// handBack is a directive that serves nothing. The one before it, CoreDNS's kubernetes, takes the log of all Kubernetes code in this
// process for itself as soon as it is set up, and what the others had to say would be lost; directives are set up in their order,
// so this one gives the log back at once.
const handBack = "handback"

var registerHandBack = sync.OnceFunc(func() {
	caddy.RegisterPlugin(handBack, caddy.Plugin{ServerType: "dns", Action: func(c *caddy.Controller) error {
		c.Next() // its own name
		klog.SetSlogLogger(slog.Default())
		return nil
	}})
})

// register makes one of our plugins known to CoreDNS by its name; once in a process.
func register(name string, in plugin.Plugin) {
	caddy.RegisterPlugin(name, caddy.Plugin{ServerType: "dns", Action: func(c *caddy.Controller) error {
		dnsserver.GetConfig(c).AddPlugin(in)
		return nil
	}})
}

// client of the API server.
func (o Options) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // limits count what guests ask
	return kubernetes.NewForConfig(config)
}

// Run serves until ctx ends, once in a process. The API server must be ready.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	caddy.Quiet, dnsserver.Quiet = true, true
	client, err := o.client()
	if err != nil {
		return err
	}
	guests, err := watchTwins(ctx, client)
	if err != nil {
		return fmt.Errorf("DNS for guests: %w", err)
	}
	limits := newLimits(log)
	register("tenants", func(next plugin.Handler) plugin.Handler { return tenants{next, guests, o.ClusterID, o.Pods} })
	register("limits", func(next plugin.Handler) plugin.Handler { return limited{next, o.isGuest, limits} })
	register("podnames", func(next plugin.Handler) plugin.Handler { return podNames{next, guests.orAtHome(podThere(client))} })
	registerHandBack()
	if err := dnsserver.SetDirectives(directives); err != nil {
		return err
	}
	up, imports := o.upstreams(), false
	instance, err := o.start(ctx, up)
	if err != nil {
		return fmt.Errorf("DNS server on %s port %d: %w", o.NodeIP, o.Port, err)
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	defined, known := o.importsDefined(ctx, log), false
	for {
		select {
		case <-ctx.Done():
			instance.ShutdownCallbacks()
			return instance.Stop()
		case <-defined:
			defined, known = nil, true
		case <-tick.C:
		}
		now := o.upstreams()
		moved := now.String() != up.String() || !slices.Equal(now.asked(), up.asked())
		if !moved && imports == known {
			continue
		}
		next, err := instance.Restart(o.corefile(now, known))
		if err != nil {
			log.Warn("cluster DNS keeps asking the old servers, and knows no more than before", "servers", up.asked(), "err", err)
			continue
		}
		instance, up, imports = next, now, known
		if !moved {
			continue
		}
		if err := WriteResolvConf(o); err != nil {
			log.Warn("pods with the host's DNS keep asking the old servers", "err", err)
		}
		log.Info("cluster DNS asks other servers now", "servers", up.asked())
	}
}

func (o Options) upstreams() resolver { return upstreams(resolvConfs, o.NodeIP, o.ClusterDNS) }

// start waits for the port, which a server that is just ending may still hold.
func (o Options) start(ctx context.Context, up resolver) (instance *caddy.Instance, err error) {
	_ = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		instance, err = caddy.Start(o.corefile(up, false))
		return err == nil || !strings.Contains(err.Error(), "address already in use"), nil
	})
	return instance, err
}

// corefile is the configuration; imports: the cluster has ServiceImports. Without them the plugin would wait for them, and answer nothing meanwhile.
func (o Options) corefile(up resolver, imports bool) caddy.CaddyfileInput {
	var b strings.Builder
	fmt.Fprintf(&b, ".:%d {\n bind %s\n errors\n limits\n tenants\n loadbalance\n cache 30 {\n  disable success cluster.local clusterset.local\n  disable denial cluster.local clusterset.local\n }\n", o.Port, o.NodeIP)
	zones := "cluster.local in-addr.arpa ip6.arpa"
	if imports {
		zones = "cluster.local clusterset.local in-addr.arpa ip6.arpa"
	}
	fmt.Fprintf(&b, " podnames\n kubernetes %s {\n  kubeconfig %s\n  pods disabled\n  ttl 5\n  fallthrough in-addr.arpa ip6.arpa\n", zones, o.Kubeconfig)
	if imports {
		b.WriteString("  multicluster clusterset.local\n")
	}
	fmt.Fprintf(&b, " }\n %s\n", handBack)
	if len(up.asked()) > 0 {
		b.WriteString(" forward .")
		for _, s := range up.asked() {
			fmt.Fprintf(&b, " %s", netip.AddrPortFrom(s, 53))
		}
		b.WriteString(" {\n  policy sequential\n  max_concurrent 1000\n }\n")
	}
	b.WriteString("}\n")
	return caddy.CaddyfileInput{Contents: []byte(b.String()), Filepath: "Corefile", ServerTypeName: "dns"}
}
