// Package config holds what a kith-k8s server is told: the flags, the same keys as a YAML file, and their
// defaults. The main program fills it; every other package of the engine takes the fields it needs.
//
// It must never look at the machine: what is here is what the owner said, nothing found out.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"kith.dev/core/net/netplan"
)

// Config is one laptop's cluster. Its defaults fit every laptop: that all of them have the same ranges is
// the normal case, the gateway translates between them.
type Config struct {
	DataDir    string // everything that survives a reboot
	RunDir     string // sockets and pid files
	RuntimeDir string // containerd, shim, runc, ctr; cni/ and images/ below it
	ImagesDir  string // image archives imported at start

	NodeName string
	NodeIP   netip.Addr

	ClusterCIDR netip.Prefix // pods of the whole cluster
	PodCIDR     netip.Prefix // pods of this node
	ServiceCIDR netip.Prefix
	IPv6        netplan.Cluster6 // beside them; the zero value: IPv4 alone
	ClusterDNS  netip.Addr
	ClusterID   string // starts with what the names of this cluster's namespaces at peers end in
	PodMTU      int    // what fits into the tunnel to peers (gateway.DefaultMTU)

	GuestNetworks string // folder where kithd writes which range the pods of another cluster's namespace get

	Port            int // API server, HTTPS, on 127.0.0.1 and NodeIP
	DNSPort         int // CoreDNS on NodeIP, behind ClusterDNS:53
	WriteKubeconfig string
	PauseImage      string
	CgroupRoot      string
	Deciding        bool   // start with what decides: scheduler, workload controllers (package deciding)
	ResourceMetrics bool   // serve metrics.k8s.io
	Expose          string // ExposeNone or ExposeLAN
	LogLevel        string

	Agents bool       // other nodes may join (package join)
	LANIP  netip.Addr // where these reach this node; the zero value: at NodeIP
	K3s    K3s        // no flags of ours: package k3s fills it
}

// K3s is what differs when kith-k8s stands in for K3s. The zero value: nothing.
type K3s struct {
	Stands         bool        // in for K3s
	Names          []string    // more names and addresses in the API server's certificate
	KubeconfigMode fs.FileMode // of WriteKubeconfig; 0: 0600
	Egress         bool        // the API server asks an egress selector for the way to nodes
	NoScheduler    bool
	NoControllers  bool              // without the controller-manager
	APIServer      map[string]string // flags of the API server, before ours
	Controllers    map[string]string // of the controller-manager
}

// Default returns a Config that needs only a node name.
func Default() Config {
	usual := netplan.Usual()
	return Config{
		DataDir:         "/var/lib/kith/k8s",
		RunDir:          "/run/kith/k8s",
		NodeIP:          usual.Node(),
		ClusterCIDR:     usual.Pods,
		PodCIDR:         usual.NodePods(),
		ServiceCIDR:     usual.Services,
		ClusterDNS:      usual.DNS(),
		PodMTU:          1400,
		Port:            netplan.APIPort,
		DNSPort:         10053,
		PauseImage:      "kith.dev/pause:1",
		CgroupRoot:      "/",
		Deciding:        true,
		ResourceMetrics: true,
		Expose:          ExposeNone,
		LogLevel:        "info",
	}
}

// Flags binds c to flags; the names are also the keys of the config file.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "brain" || name == "control-plane" { // as older kithds, which may come to start this engine, call it
			name = "deciding"
		}
		return pflag.NormalizedName(name)
	})
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "folder for everything that survives a reboot")
	fs.StringVar(&c.RunDir, "run-dir", c.RunDir, "folder for sockets and pid files")
	fs.StringVar(&c.RuntimeDir, "runtime-dir", c.RuntimeDir, "folder of containerd, containerd-shim-runc-v2, runc and ctr, with cni/ and images/ in it (default: the folder of this program)")
	fs.StringVar(&c.ImagesDir, "images-dir", c.ImagesDir, "folder of image archives (*.tar) imported at start (default DATA-DIR/images)")
	fs.StringVar(&c.NodeName, "node-name", c.NodeName, "name of the node (default: the host name)")
	fs.TextVar(&c.NodeIP, "node-ip", c.NodeIP, "address of the node, put on a network device of its own")
	fs.TextVar(&c.ClusterCIDR, "cluster-cidr", c.ClusterCIDR, "range of pod addresses of the cluster")
	fs.String("guest-cidr", "", "without effect: the addresses of guests are agreed on with their homes")
	_ = fs.MarkHidden("guest-cidr") // an older kithd says it, which may come to start this engine
	fs.TextVar(&c.PodCIDR, "pod-cidr", c.PodCIDR, "range of pod addresses of this node")
	fs.StringVar(&c.GuestNetworks, "guest-networks", c.GuestNetworks, "folder with a file per namespace of guests, pods of other clusters that run here: the range of their addresses (default DATA-DIR/guests)")
	fs.TextVar(&c.ServiceCIDR, "service-cidr", c.ServiceCIDR, "range of service addresses")
	fs.TextVar(&c.IPv6.Pods, "cluster-cidr-ipv6", c.IPv6.Pods, "IPv6 range of pod addresses, beside that of IPv4: pods and services then have both families; /48 to /63, of which this node's pods have the first /64")
	fs.TextVar(&c.IPv6.Services, "service-cidr-ipv6", c.IPv6.Services, "IPv6 range of service addresses, with cluster-cidr-ipv6; /108 to /120")
	fs.TextVar(&c.ClusterDNS, "cluster-dns", c.ClusterDNS, "service address of the cluster's DNS")
	fs.StringVar(&c.ClusterID, "cluster-id", c.ClusterID, "Kith's ID of this cluster in its compact form; names of its namespaces at peers end in its first characters")
	fs.IntVar(&c.PodMTU, "pod-mtu", c.PodMTU, "MTU of the pods' bridge and devices")
	fs.IntVar(&c.Port, "https-listen-port", c.Port, "port of the API server on 127.0.0.1 and the node address")
	fs.IntVar(&c.DNSPort, "dns-port", c.DNSPort, "port of the DNS server on the node address")
	fs.StringVar(&c.WriteKubeconfig, "write-kubeconfig", c.WriteKubeconfig, "where to write the administrator's kubeconfig (default DATA-DIR/admin.kubeconfig)")
	fs.StringVar(&c.PauseImage, "pause-image", c.PauseImage, "image of the pod sandbox, found in RUNTIME-DIR/images/pause.tar")
	fs.StringVar(&c.CgroupRoot, "cgroup-root", c.CgroupRoot, "cgroup under which pods are put")
	fs.BoolVar(&c.Deciding, "deciding", c.Deciding, "run what decides: the scheduler and the controllers of workloads, disruptions, evictions and volumes; without it pods run on, and only housekeeping goes on. RUN-DIR/deciding.sock changes it")
	fs.BoolVar(&c.ResourceMetrics, "resource-metrics", c.ResourceMetrics, "serve the resource metrics API (kubectl top, horizontal pod autoscalers); off for a metrics-server of your own")
	fs.StringVar(&c.Expose, "expose", c.Expose, "where node ports are open: none (on the node address alone, which no LAN reaches) or lan (on the laptop's addresses)")
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	fs.BoolVar(&c.Agents, "agents", c.Agents, "let other nodes join (kith-k8s agent, kith-k8s token): the API server listens on node-ip, or lan-ip, for the LAN as well, and nodes get pod ranges")
	fs.TextVar(&c.LANIP, "lan-ip", c.LANIP, "with agents, the address of this node on the LAN, where node-ip is one on a device of its own (default node-ip, which then is an address that the machine has)")
}

// To whom node ports are open.
const (
	ExposeNone = "none"
	ExposeLAN  = "lan"
)

var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// Complete fills what depends on other fields and on the program's place and host, given by the caller, and
// says everything that is wrong at once.
func (c *Config) Complete(program, hostname string) error {
	if c.NodeName == "" {
		c.NodeName = hostname
	}
	if c.RuntimeDir == "" {
		c.RuntimeDir = filepath.Dir(program)
	}
	if c.ImagesDir == "" {
		c.ImagesDir = filepath.Join(c.DataDir, "images")
	}
	if c.GuestNetworks == "" {
		c.GuestNetworks = filepath.Join(c.DataDir, "guests")
	}
	if c.WriteKubeconfig == "" {
		c.WriteKubeconfig = filepath.Join(c.DataDir, "admin.kubeconfig")
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !nodeName.MatchString(c.NodeName) || len(c.NodeName) > 63 {
		wrong("node-name %q: want a DNS label of at most 63 lower-case letters, digits, - and .", c.NodeName)
	}
	for _, d := range []struct{ key, dir string }{{"data-dir", c.DataDir}, {"run-dir", c.RunDir}, {"runtime-dir", c.RuntimeDir}, {"images-dir", c.ImagesDir}, {"guest-networks", c.GuestNetworks}, {"write-kubeconfig", c.WriteKubeconfig}} {
		if !filepath.IsAbs(d.dir) {
			wrong("%s %q: want an absolute path", d.key, d.dir)
		}
	}
	// A unix socket's path has 108 bytes; ours are at most "/containerd/containerd.sock.ttrpc" longer.
	if len(c.RunDir) > 70 {
		wrong("run-dir %q: want at most 70 bytes, it holds unix sockets", c.RunDir)
	}
	for _, r := range []struct {
		key string
		p   netip.Prefix
	}{{"cluster-cidr", c.ClusterCIDR}, {"pod-cidr", c.PodCIDR}, {"service-cidr", c.ServiceCIDR}} {
		if !r.p.IsValid() || !r.p.Addr().Is4() || r.p != r.p.Masked() {
			wrong("%s %q: want an IPv4 range such as 10.42.0.0/16", r.key, r.p)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if c.PodCIDR.Bits() < c.ClusterCIDR.Bits() || !c.ClusterCIDR.Contains(c.PodCIDR.Addr()) {
		wrong("pod-cidr %s: must lie inside cluster-cidr %s", c.PodCIDR, c.ClusterCIDR)
	}
	if c.ClusterCIDR.Overlaps(c.ServiceCIDR) {
		wrong("service-cidr %s: must not overlap cluster-cidr %s", c.ServiceCIDR, c.ClusterCIDR)
	}
	if !c.ServiceCIDR.Contains(c.ClusterDNS) {
		wrong("cluster-dns %s: must lie inside service-cidr %s", c.ClusterDNS, c.ServiceCIDR)
	}
	if !c.NodeIP.Is4() || c.PodCIDR.Contains(c.NodeIP) || c.ServiceCIDR.Contains(c.NodeIP) {
		wrong("node-ip %s: want an IPv4 address outside pod-cidr and service-cidr", c.NodeIP)
	}
	for _, p := range []struct {
		key  string
		port int
	}{{"https-listen-port", c.Port}, {"dns-port", c.DNSPort}} {
		if p.port < 1 || p.port > 65535 {
			wrong("%s %d: want 1 to 65535", p.key, p.port)
		}
	}
	if c.PodMTU < 576 || c.PodMTU > 9216 {
		wrong("pod-mtu %d: want 576 to 9216", c.PodMTU)
	}
	if c.Expose != ExposeNone && c.Expose != ExposeLAN {
		wrong("expose %q: want %s or %s", c.Expose, ExposeNone, ExposeLAN)
	}
	switch {
	case c.Agents && c.ClusterCIDR.IsValid() && c.ClusterCIDR.Bits() > 22:
		wrong("cluster-cidr %s: with agents, want a /22 or larger: each node has a /24 of it, and the upper half is kept back", c.ClusterCIDR)
	case c.Agents && (c.PodCIDR.Bits() != 24 || !c.NodeRanges().Contains(c.PodCIDR.Addr())):
		wrong("pod-cidr %s: with agents, want a /24 in %s, from which all nodes have theirs", c.PodCIDR, c.NodeRanges())
	case c.LANIP.IsValid() && !c.Agents:
		wrong("lan-ip %s: it is for nodes that join, which need agents", c.LANIP)
	case c.LANIP.IsValid() && (!c.LANIP.Is4() || c.ClusterCIDR.Contains(c.LANIP) || c.ServiceCIDR.Contains(c.LANIP)):
		wrong("lan-ip %s: want an IPv4 address outside cluster-cidr and service-cidr", c.LANIP)
	}
	if c.IPv6 != (netplan.Cluster6{}) {
		if err := c.IPv6.Validate(); err != nil {
			wrong("cluster-cidr-ipv6 and service-cidr-ipv6: %w", err)
		}
		if c.Agents {
			wrong("cluster-cidr-ipv6 %s: with agents, pods have IPv4 alone: leave it out, or have no other nodes join", c.IPv6.Pods)
		}
	}
	if _, ok := levels[c.LogLevel]; !ok {
		wrong("log-level %q: want debug, info, warn or error", c.LogLevel)
	}
	return errors.Join(errs...)
}

// NodeRanges is what nodes get their ranges of pods from: the lower half of the cluster's range. The node's own address, where it has one
// on a device of its own, is in the upper half (netplan.Cluster).
func (c *Config) NodeRanges() netip.Prefix {
	return netip.PrefixFrom(c.ClusterCIDR.Addr(), c.ClusterCIDR.Bits()+1)
}

// AtLAN is the address at which other nodes reach this one.
func (c *Config) AtLAN() netip.Addr {
	if c.LANIP.IsValid() {
		return c.LANIP
	}
	return c.NodeIP
}

// APIServiceIP is the service address of the API server: the first of the range.
func (c *Config) APIServiceIP() netip.Addr { return c.ServiceCIDR.Addr().Next() }

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// Level is the level that LogLevel names.
func (c *Config) Level() slog.Level { return levels[c.LogLevel] }

// Load sets the flags in fs from the YAML file at path, except those given on the command line, which
// win. A key that is no flag is an error: a misspelt key that is silently ignored costs an evening.
func Load(path string, fs *pflag.FlagSet) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(b, &values); err != nil {
		return fmt.Errorf("config %s: want a YAML map of flags to values: %w", path, err)
	}
	var errs []error
	for key, value := range values {
		flag := fs.Lookup(key)
		switch v := value.(type) {
		case string, bool, float64, int64:
			if flag == nil || key == "config" || key == "help" {
				errs = append(errs, fmt.Errorf("config %s: unknown key %q; known are %s", path, key, keys(fs)))
			} else if flag.Changed {
				continue
			} else if err := fs.Set(key, fmt.Sprint(v)); err != nil {
				errs = append(errs, fmt.Errorf("config %s: %w", path, err))
			}
		default:
			errs = append(errs, fmt.Errorf("config %s: key %q: want one value, not %T", path, key, value))
		}
	}
	return errors.Join(errs...)
}

func keys(fs *pflag.FlagSet) string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	slices.Sort(names)
	return strings.Join(names, ", ")
}
