package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"kith.dev/core/net/netplan"
)

// KubeconfigConfig names a cluster that is there already. Empty fields are found out.
type KubeconfigConfig struct {
	Path     string     // of the kubeconfig; empty: the cluster this process runs in as a pod
	Context  string     // empty: the kubeconfig's current one
	NodeName string     // the node that this machine is; empty: the host name, or the only node
	NodeIP   netip.Addr // by which the cluster's API server reaches this machine; invalid: that node's InternalIP
	Network  netplan.Cluster
	Assumed  bool // Network.Pods is only the default, which what the cluster says overrides
	Log      *slog.Logger
}

// Kubeconfig is a cluster that somebody else runs. It is watched, never started or stopped.
type Kubeconfig struct {
	*status
	cfg              KubeconfigConfig
	rest             *rest.Config
	raw              *api.Config // nil inside a pod
	client           kubernetes.Interface
	probe            func(context.Context) error
	asking, watching time.Duration                      // between questions while it is not ready, and while it is
	explain          func(context.Context, error) error // what more is known of why it does not answer; or nil
	learn            func(*Facts, *corev1.Node) error   // what more is known of the cluster; or nil

	wake chan struct{} // holds a token when it is to be asked now

	mu    sync.Mutex
	facts Facts
}

// NewKubeconfig reads the kubeconfig. The cluster need not answer yet.
func NewKubeconfig(cfg KubeconfigConfig) (*Kubeconfig, error) {
	k := &Kubeconfig{cfg: cfg, facts: Facts{Network: cfg.Network}, status: newStatus(Starting, "not asked yet"), asking: time.Second, watching: usualPace.watching}
	k.wake = make(chan struct{}, 1)
	var err error
	if cfg.Path == "" {
		if k.rest, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("no kubeconfig is set and this is no pod of a cluster: %w; set kubeconfig", err)
		}
		k.rest.Dial = dial
	} else if err = k.load(); err != nil {
		return nil, err
	}
	if k.client, err = kubernetes.NewForConfig(k.rest); err != nil {
		return nil, fmt.Errorf("cluster of %s: %w", cfg.Path, err)
	}
	client, err := rest.HTTPClientFor(k.rest)
	if err != nil {
		return nil, fmt.Errorf("cluster of %s: %w", cfg.Path, err)
	}
	k.probe = func(ctx context.Context) error { return askReadyz(ctx, client, k.rest.Host) }
	return k, nil
}

func (k *Kubeconfig) load() error {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: k.cfg.Path}, &clientcmd.ConfigOverrides{CurrentContext: k.cfg.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", k.cfg.Path, err)
	}
	if k.cfg.Context != "" {
		raw.CurrentContext = k.cfg.Context
	}
	if _, ok := raw.Contexts[raw.CurrentContext]; !ok {
		return fmt.Errorf("kubeconfig %s: no context %q; it has %s", k.cfg.Path, raw.CurrentContext, list(slices.Sorted(maps.Keys(raw.Contexts))))
	}
	if k.rest, err = loader.ClientConfig(); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", k.cfg.Path, err)
	}
	k.raw = &raw
	return nil
}

// Run finds out what there is to know, then asks every 15 seconds whether the cluster is ready. When it was not, or is another version, it finds
// out again: a node that was restarted may have another address.
func (k *Kubeconfig) Run(ctx context.Context) error {
	var pause time.Duration
	growing := wait.Backoff{Duration: 2 * k.asking, Factor: 2, Steps: 100, Cap: 10 * k.asking} // until the cluster was ready once
	for known := false; ; {
		err := k.probe(ctx)
		if err == nil && (!known || k.State().Phase != Ready || k.version() != k.Facts().Version) {
			if err = k.findOut(ctx); err == nil {
				known = true
			}
		}
		if err != nil && k.explain != nil {
			err = k.explain(ctx, err)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if k.set(Ready, "") {
				k.cfg.Log.Info("the cluster is ready", "node", k.Facts().NodeName)
			}
			pause = k.watching
		case known:
			k.set(Degraded, err.Error())
			pause = k.asking
		default:
			if k.set(Starting, err.Error()) {
				k.cfg.Log.Warn("the cluster cannot be used yet", "err", err)
			}
			pause = growing.Step()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-time.After(pause):
		}
	}
}

// version is that of the API server, or the one known if it does not say.
func (k *Kubeconfig) version() string {
	v, err := k.client.Discovery().ServerVersion()
	if err != nil {
		return k.Facts().Version
	}
	return v.GitVersion
}

// findOut reads node and ranges from the cluster, unless they were given.
func (k *Kubeconfig) findOut(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	node, err := k.findNode(ctx)
	if err != nil {
		return err
	}
	f := Facts{NodeName: node.Name, NodeIP: k.cfg.NodeIP, Network: k.cfg.Network, Version: k.version()}
	f.NoTunnel = isK3s(f.Version)
	for _, a := range node.Status.Addresses {
		if f.NodeIP.IsValid() {
			break
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ip.Is4() {
			f.NodeIP = ip
		}
	}
	if !f.NodeIP.IsValid() {
		return fmt.Errorf("node %s has no IPv4 InternalIP yet", node.Name)
	}
	if !f.Network.Services.IsValid() {
		if f.Network.Services, err = k.findServices(ctx); err != nil {
			return err
		}
	}
	pods, err := k.findPods(ctx)
	switch {
	case err != nil:
		return err
	case !pods.IsValid():
		return fmt.Errorf("node %s has no spec.podCIDR, so the range of pod addresses is not known: set podRange", node.Name)
	case f.Network.Pods.IsValid() && f.Network.Pods != pods:
		return fmt.Errorf("the nodes' pods have addresses of %s, and kithd began with %s, which is usual: start it again, or set podRange", pods, f.Network.Pods)
	}
	f.Network.Pods = pods
	if k.learn != nil {
		if err := k.learn(&f, node); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.facts != f {
		k.facts = f
		k.changed.Notify()
	}
	return nil
}

// FindPods asks the cluster for the range of its pods, unless it was given. It is for callers that need it before Run; if the cluster does
// not answer yet, Run finds it out later.
func (k *Kubeconfig) FindPods(ctx context.Context) (netip.Prefix, error) {
	pods, err := k.findPods(ctx)
	if err == nil && pods.IsValid() {
		k.mu.Lock()
		k.cfg.Network.Pods, k.facts.Network.Pods = pods, pods
		k.mu.Unlock()
	}
	return pods, err
}

// findPods is the range that was given, or a guess from the podCIDRs of the nodes, since no API gives the cluster's range: the usual
// range if it contains all podCIDRs, else the smallest that does, but at least a /16 (unless that would overlap the services).
func (k *Kubeconfig) findPods(ctx context.Context) (netip.Prefix, error) {
	given := k.cfg.Network.Pods
	if given.IsValid() && !k.cfg.Assumed {
		return given, nil
	}
	nodes, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type!=virtual-kubelet"})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("list nodes: %w", err)
	}
	var parts []netip.Prefix
	for _, n := range nodes.Items {
		if part, err := netip.ParsePrefix(n.Spec.PodCIDR); err == nil && part.Addr().Is4() {
			parts = append(parts, part.Masked())
		}
	}
	return around(given, k.cfg.Network.Services, parts)
}

// around guesses the range of pods of a cluster whose nodes have these podCIDRs; see findPods.
func around(usual, services netip.Prefix, parts []netip.Prefix) (netip.Prefix, error) {
	const largest, least, smallest = 12, 16, 20 // as podRange may be, see daemon/config
	holds := func(whole netip.Prefix) bool {
		return whole.IsValid() && !slices.ContainsFunc(parts, func(p netip.Prefix) bool { return !whole.Contains(p.Addr()) || p.Bits() < whole.Bits() })
	}
	if len(parts) == 0 || holds(usual) {
		return usual, nil
	}
	for _, bits := range []int{least, least + 1, least + 2, least + 3, smallest, least - 1, least - 2, least - 3, largest} {
		if whole := netip.PrefixFrom(parts[0].Addr(), bits).Masked(); holds(whole) && !(services.IsValid() && whole.Overlaps(services)) {
			return whole, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("the range of pod addresses is not known: nodes have spec.podCIDRs %v, which lie in none of a /%d; set podRange", parts, largest)
}

// isK3s reports whether the API server of that version is one of K3s or of RKE2, which reach nodes as K3s does.
func isK3s(version string) bool {
	return strings.Contains(version, "+k3s") || strings.Contains(version, "+rke2")
}

func (k *Kubeconfig) findNode(ctx context.Context) (*corev1.Node, error) {
	name := k.cfg.NodeName
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		name = strings.ToLower(host)
	}
	node, err := k.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return node, nil
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	// Virtual nodes, Kith's own among them, are no machines.
	nodes, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type!=virtual-kubelet", Limit: 100})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	if k.cfg.NodeName == "" && len(nodes.Items) == 1 {
		return &nodes.Items[0], nil
	}
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
	}
	return nil, fmt.Errorf("the cluster has no node %q: set nodeName to one of its nodes: %s", name, list(names))
}

// findServices reads the ServiceCIDR object (KEP-1880, GA in Kubernetes 1.33).
func (k *Kubeconfig) findServices(ctx context.Context) (netip.Prefix, error) {
	object, err := k.client.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("the range of service addresses is not known: %w; set serviceRange", err)
	}
	for _, text := range object.Spec.CIDRs {
		if cidr, err := netip.ParsePrefix(text); err == nil && cidr.Addr().Is4() {
			return cidr.Masked(), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("the range of service addresses is not known: ServiceCIDR kubernetes has only %v; set serviceRange", object.Spec.CIDRs)
}

// Kubeconfig is the file that was given, reduced to the context used and with the files it names inside.
func (k *Kubeconfig) Kubeconfig() ([]byte, error) {
	if k.raw == nil {
		return nil, errors.New("kithd uses the cluster it runs in as a pod; there is no kubeconfig to give")
	}
	raw := k.raw.DeepCopy()
	if err := api.MinifyConfig(raw); err != nil {
		return nil, err
	}
	if err := api.FlattenConfig(raw); err != nil {
		return nil, err
	}
	return clientcmd.Write(*raw)
}

// RESTConfig is what the kubeconfig says.
func (k *Kubeconfig) RESTConfig() *rest.Config { return k.rest }

// Facts are the node that this machine is, its InternalIP, the ranges given or else the node's own and that of the ServiceCIDR object.
func (k *Kubeconfig) Facts() Facts {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.facts
}

// Decide always returns ErrNotOurs.
func (k *Kubeconfig) Decide(context.Context, bool) error {
	return fmt.Errorf("turn its scheduler and controllers on or off: %w", ErrNotOurs)
}

// Decides is always true: it decides whatever Kith says.
func (k *Kubeconfig) Decides() bool { return true }

// list writes names as they stand in a sentence.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
