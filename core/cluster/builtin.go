package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Program is the name of the built-in engine's program.
const Program = "kith-k8s"

// BuiltinConfig says how the built-in engine is run. Empty fields get defaults.
type BuiltinConfig struct {
	NodeName     string
	ClusterID    string       // Kith's, in its compact form: by it DNS knows the names of this cluster's namespaces at peers
	DataDir      string       // "/var/lib/kith/k8s"
	RunDir       string       // "/run/kith/k8s"
	RuntimeDir   string       // folder of kith-k8s, containerd and the rest; by default that of this program
	ImagesDir    string       // image archives imported at start; by default images in DataDir
	PodRange     netip.Prefix // 10.42.0.0/16; at least a /23, of which the node has the first /24 and the last is Kith's
	ServiceRange netip.Prefix // 10.43.0.0/16
	Port         uint16       // of the API server, 6443
	NoBrain      bool         // start without scheduler and controller-manager
	ExposeLAN    bool         // open node ports to the LAN
	Flags        []string     // more flags for kith-k8s server
	Log          *slog.Logger
}

// Builtin is the built-in engine: `kith-k8s server` as a child in a session of its own, so that it outlives this
// process; the next one adopts it.
type Builtin struct {
	cfg     BuiltinConfig
	program string
	status  *status
	pace    pace
	probe   func(context.Context) error // nil when the API server is ready

	mu   sync.Mutex
	wish wish
	runs wish          // what runs now; meaningful while ready
	wake chan struct{} // holds a token when the wish has changed
	busy bool          // Run is at work
}

// wish is what is wanted of the engine.
type wish struct{ stopped, noBrain bool }

// NewBuiltin checks the configuration. Nothing runs before Run.
func NewBuiltin(cfg BuiltinConfig) (*Builtin, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if cfg.DataDir == "" {
		cfg.DataDir = "/var/lib/kith/k8s"
	}
	if cfg.RunDir == "" {
		cfg.RunDir = "/run/kith/k8s"
	}
	if cfg.RuntimeDir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's folder: %w", err)
		}
		cfg.RuntimeDir = filepath.Dir(self)
	}
	if !cfg.PodRange.IsValid() {
		cfg.PodRange = netip.MustParsePrefix("10.42.0.0/16")
	}
	if !cfg.ServiceRange.IsValid() {
		cfg.ServiceRange = netip.MustParsePrefix("10.43.0.0/16")
	}
	if !cfg.PodRange.Addr().Is4() || cfg.PodRange.Bits() > 23 {
		return nil, fmt.Errorf("pod range %s: want an IPv4 range of /23 or larger, such as 10.42.0.0/16", cfg.PodRange)
	}
	if !cfg.ServiceRange.Addr().Is4() || cfg.ServiceRange.Bits() > 24 {
		return nil, fmt.Errorf("service range %s: want an IPv4 range of /24 or larger, such as 10.43.0.0/16", cfg.ServiceRange)
	}
	if cfg.Port == 0 {
		cfg.Port = 6443
	}
	if cfg.NodeName == "" {
		return nil, errors.New("the built-in engine needs a node name")
	}
	if cfg.Log == nil {
		cfg.Log = discard
	}
	b := &Builtin{
		cfg: cfg, program: filepath.Join(cfg.RuntimeDir, Program), status: newStatus(Stopped, "not started yet"),
		pace: usualPace, wish: wish{noBrain: cfg.NoBrain}, wake: make(chan struct{}, 1),
	}
	b.probe = b.askReadyz
	return b, nil
}

// args are those of the engine for a wish. They also decide whether a running engine is the one that is wanted.
func (b *Builtin) args(w wish) []string {
	c := b.cfg
	dns := c.ServiceRange.Masked().Addr().As4()
	dns[3] += 10
	args := []string{
		"server",
		"--node-name=" + c.NodeName,
		"--data-dir=" + c.DataDir,
		"--run-dir=" + c.RunDir,
		"--runtime-dir=" + c.RuntimeDir,
		"--node-ip=" + b.NodeIP().String(),
		"--cluster-cidr=" + b.PodRange().String(),
		"--pod-cidr=" + b.PodCIDR().String(),
		"--guest-cidr=" + b.GuestRange().String(),
		"--service-cidr=" + b.ServiceRange().String(),
		"--cluster-dns=" + netip.AddrFrom4(dns).String(),
		fmt.Sprintf("--https-listen-port=%d", c.Port),
		fmt.Sprintf("--brain=%t", !w.noBrain),
	}
	if c.ClusterID != "" {
		args = append(args, "--cluster-id="+c.ClusterID)
	}
	if c.ImagesDir != "" {
		args = append(args, "--images-dir="+c.ImagesDir)
	}
	if c.ExposeLAN {
		args = append(args, "--expose=lan")
	}
	return append(args, c.Flags...)
}

// RESTConfig names the administrator's files, which client-go reloads when they are renewed.
func (b *Builtin) RESTConfig() *rest.Config {
	pki := filepath.Join(b.cfg.DataDir, "pki")
	return &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", b.cfg.Port),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: filepath.Join(pki, "ca.crt"), CertFile: filepath.Join(pki, "admin.crt"), KeyFile: filepath.Join(pki, "admin.key"),
		},
	}
}

// Kubeconfig is the administrator's, as the engine wrote it.
func (b *Builtin) Kubeconfig() ([]byte, error) {
	return os.ReadFile(filepath.Join(b.cfg.DataDir, "admin.kubeconfig"))
}

// NodeName is the name given.
func (b *Builtin) NodeName() string { return b.cfg.NodeName }

// NodeIP is the first address of the last /24 of the pod range: outside the node's own part, so no pod gets it,
// and inside the range, so it has an alias at every peer.
func (b *Builtin) NodeIP() netip.Addr {
	a := b.cfg.PodRange.Masked().Addr().As4()
	for bit := b.cfg.PodRange.Bits(); bit < 24; bit++ {
		a[bit/8] |= 1 << (7 - bit%8)
	}
	a[3] = 1
	return netip.AddrFrom4(a)
}

// PodRange is the range given.
func (b *Builtin) PodRange() netip.Prefix { return b.cfg.PodRange.Masked() }

// GuestRange is the part of PodRange from which guests, pods of other clusters, get their addresses: the upper half of
// its last /24.
func (b *Builtin) GuestRange() netip.Prefix {
	a := b.NodeIP().As4()
	a[3] = 128
	return netip.PrefixFrom(netip.AddrFrom4(a), 25)
}

// PodCIDR is the first /24 of the pod range.
func (b *Builtin) PodCIDR() netip.Prefix { return netip.PrefixFrom(b.cfg.PodRange.Masked().Addr(), 24) }

// ServiceRange is the range given.
func (b *Builtin) ServiceRange() netip.Prefix { return b.cfg.ServiceRange.Masked() }

// State is how the engine is.
func (b *Builtin) State() State { return b.status.get() }

// Changed tells of the next State.
func (b *Builtin) Changed() <-chan struct{} { return b.status.next() }

// WaitReady waits for the API server.
func (b *Builtin) WaitReady(ctx context.Context) error { return b.status.waitReady(ctx) }

// askReadyz asks the API server, and believes only ours: its certificate must be of our authority.
func (b *Builtin) askReadyz(ctx context.Context) error {
	client, err := rest.HTTPClientFor(b.RESTConfig())
	if err != nil {
		return errors.New("its certificates are being made")
	}
	return askReadyz(ctx, client, b.RESTConfig().Host)
}

// askReadyz returns nil when the API server at host says it is ready, and otherwise what it says instead.
func askReadyz(ctx context.Context, client *http.Client, host string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(host, "/")+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("its API server does not answer: %w", err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("its API server answers %s: %s", resp.Status, failedChecks(string(body)))
	}
	return nil
}

// failedChecks picks from the text of /readyz the lines that say what is wrong.
func failedChecks(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(strings.TrimPrefix(line, "[-]")))
		}
	}
	if len(failed) == 0 {
		return strings.TrimSpace(body)
	}
	return strings.Join(failed, "; ")
}
