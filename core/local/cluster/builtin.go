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
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"kith.dev/core/net/netplan"
)

// Program is the name of the built-in engine's program.
const Program = "kith-k8s"

// BuiltinConfig says how the built-in engine is run.
type BuiltinConfig struct {
	NodeName   string
	ClusterID  string // Kith's, in its compact form: by it DNS knows the names of this cluster's namespaces at peers
	DataDir    string // what it keeps, such as /var/lib/kith/k8s
	RunDir     string // its sockets, such as /run/kith/k8s
	RuntimeDir string // folder of kith-k8s, containerd and the rest; by default that of this program
	ImagesDir  string // image archives imported at start; by default images in DataDir
	Network    netplan.Cluster
	ExposeLAN  bool     // open node ports to the LAN
	Flags      []string // more flags for kith-k8s server
	Log        *slog.Logger
}

// Builtin is the built-in engine: `kith-k8s server` as a child.
type Builtin struct {
	*child
	cfg  BuiltinConfig
	tell func(ctx context.Context, on bool) error // tells the engine, and returns when it has done so
}

// NewBuiltin checks the configuration. Nothing runs before Run.
func NewBuiltin(cfg BuiltinConfig) (*Builtin, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("the built-in Kubernetes needs Linux, this is " + runtime.GOOS +
			": set engine to kubeconfig, and kubeconfig to a cluster in a virtual machine or elsewhere")
	}
	if cfg.RuntimeDir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program's folder: %w", err)
		}
		cfg.RuntimeDir = filepath.Dir(self)
	}
	if err := cfg.Network.Validate(); err != nil {
		return nil, err
	}
	if cfg.NodeName == "" {
		return nil, errors.New("the built-in engine needs a node name")
	}
	b := &Builtin{child: newChild(cfg.Log), cfg: cfg}
	b.what, b.kind, b.name = "the built-in Kubernetes", "built-in Kubernetes", Program
	b.program, b.node, b.dataDir, b.runDir = filepath.Join(cfg.RuntimeDir, Program), cfg.NodeName, cfg.DataDir, cfg.RunDir
	b.args, b.also = b.flags, func() []string { return []string{fmt.Sprintf("--deciding=%t", b.Decides())} }
	b.probe, b.converge, b.tell, b.lieDown = b.askReadyz, b.tellNews, b.tellEngine, b.endRuntime
	b.api = fmt.Sprintf("127.0.0.1:%d", netplan.APIPort)
	b.recall()
	return b, nil
}

// flags are those of the engine.
func (b *Builtin) flags() []string {
	c := b.cfg
	args := []string{
		"server",
		"--node-name=" + c.NodeName,
		"--data-dir=" + c.DataDir,
		"--run-dir=" + c.RunDir,
		"--runtime-dir=" + c.RuntimeDir,
		"--node-ip=" + c.Network.Node().String(),
		"--cluster-cidr=" + c.Network.Pods.String(),
		"--pod-cidr=" + c.Network.NodePods().String(),
		"--guest-networks=" + b.guestNetworks(),
		"--service-cidr=" + c.Network.Services.String(),
		"--cluster-dns=" + c.Network.DNS().String(),
		fmt.Sprintf("--https-listen-port=%d", netplan.APIPort),
	}
	if ipv6 := c.Network.IPv6; ipv6 != (netplan.Cluster6{}) {
		args = append(args, "--cluster-cidr-ipv6="+ipv6.Pods.String(), "--service-cidr-ipv6="+ipv6.Services.String())
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
		Host: fmt.Sprintf("https://127.0.0.1:%d", netplan.APIPort),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: filepath.Join(pki, "ca.crt"), CertFile: filepath.Join(pki, "admin.crt"), KeyFile: filepath.Join(pki, "admin.key"),
		},
	}
}

// Kubeconfig is the administrator's, as the engine wrote it.
func (b *Builtin) Kubeconfig() ([]byte, error) {
	return os.ReadFile(b.kubeconfig())
}

func (b *Builtin) guestNetworks() string { return filepath.Join(b.cfg.DataDir, "guests") }

func (b *Builtin) kubeconfig() string { return filepath.Join(b.cfg.DataDir, "admin.kubeconfig") }

// Facts follow from the configuration.
func (b *Builtin) Facts() Facts {
	return Facts{
		NodeName: b.cfg.NodeName, NodeIP: b.cfg.Network.Node(), Network: b.cfg.Network,
		API:        netip.AddrPortFrom(b.cfg.Network.Node(), netplan.APIPort),
		Kubeconfig: b.kubeconfig(), Log: b.logFile(), Program: b.program, GuestNetworks: b.guestNetworks(), Runtime: filepath.Join(b.cfg.RunDir, "containerd", "containerd.sock"),
		Ours: true, Switchable: true, Sleeps: !b.takesNodes(), GuestLinks: true, TenantDNS: true, NodePorts: true,
	}
}

// takesNodes reports whether other machines may join, which they do at its API server.
func (b *Builtin) takesNodes() bool {
	return slices.ContainsFunc(b.cfg.Flags, func(f string) bool { return f == "--agents" || strings.HasPrefix(f, "--agents=") })
}

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
