// Package k3s is a stand-in: it has kith-k8s take the command line and the configuration files of K3s, when it is called by the name k3s or as
// `kith-k8s k3s`, and do with them what K3s would as far as Kith's engine `k3s` can tell (kith.dev/core/local/cluster). It is there so that this
// engine is tested where K3s itself cannot be had. It is no K3s: nobody should run it in place of one, and no agent can join it.
//
// What it honours: `k3s server` with the flags below, from the command line, from --config FILE and from FILE.d/*.yaml; the layout of the
// data directory; the place of the kubeconfig; the egress selector (package egress); addresses hidden as flannel hides them. Flags of K3s that
// it does not honour it refuses by name: a test that needs one must not pass for want of it.
package k3s

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/core/net/netplan"
	"kith.dev/engine/config"
	"kith.dev/engine/egress"
)

// Name is K3s' program.
const Name = "k3s"

// settings are the flags of `k3s server` that are honoured.
type settings struct {
	config, dataDir, nodeName, nodeIP                        string
	clusterCIDR, serviceCIDR, clusterDNS, tlsSAN, disable    []string
	writeKubeconfig, writeKubeconfigMode, egress             string
	port                                                     int
	noScheduler, noControllers, noNetworkPolicy, noCloud     bool
	apiServer, controllers, kubeProxy                        []string
	flannelBackend, flannelIface, token, bindAddress, logger string
}

// foreign are flags of K3s' server that a cluster may have and the stand-in has no use for.
var foreign = []string{
	"advertise-address", "advertise-port", "agent-token", "cluster-domain", "cluster-init", "datastore-endpoint", "default-local-storage-path", "disable-agent",
	"disable-apiserver", "disable-etcd", "disable-helm-controller", "disable-kube-proxy", "docker", "embedded-registry", "container-runtime-endpoint", "etcd-arg",
	"flannel-conf", "flannel-external-ip", "flannel-ipv6-masq", "kubelet-arg", "kube-scheduler-arg", "kube-cloud-controller-manager-arg", "node-external-ip", "node-label",
	"node-taint", "pause-image", "private-registry", "protect-kernel-defaults", "resolv-conf", "rootless", "secrets-encryption", "selinux", "server",
	"service-node-port-range", "servicelb-namespace", "snapshotter", "system-default-registry", "tls-san-security", "token-file", "vpn-auth", "write-kubeconfig-group",
}

func (s *settings) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("k3s server", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVarP(&s.config, "config", "c", k3sconfig.File, "configuration file; those in FILE.d are read after it")
	f.StringVarP(&s.dataDir, "data-dir", "d", k3sconfig.DataDir, "folder to hold state")
	f.StringVar(&s.nodeName, "node-name", "", "name of the node (default: the host name)")
	f.StringVarP(&s.nodeIP, "node-ip", "i", "", "address of the node (default: that of the default route)")
	f.StringSliceVar(&s.clusterCIDR, "cluster-cidr", []string{netplan.Usual().Pods.String()}, "range of pod addresses")
	f.StringSliceVar(&s.serviceCIDR, "service-cidr", []string{netplan.Usual().Services.String()}, "range of service addresses")
	f.StringSliceVar(&s.clusterDNS, "cluster-dns", nil, "address of the DNS service (default: the tenth of service-cidr)")
	f.StringSliceVar(&s.tlsSAN, "tls-san", nil, "more names in the server's certificate")
	f.StringVarP(&s.writeKubeconfig, "write-kubeconfig", "o", k3sconfig.Kubeconfig, "write the administrator's kubeconfig there")
	f.StringVar(&s.writeKubeconfigMode, "write-kubeconfig-mode", "0600", "with this mode")
	f.StringSliceVar(&s.disable, "disable", nil, "packaged components not to deploy; the stand-in has none")
	f.BoolVar(&s.noScheduler, "disable-scheduler", false, "run no scheduler")
	f.BoolVar(&s.noControllers, "disable-controller-manager", false, "run no controller-manager")
	f.BoolVar(&s.noCloud, "disable-cloud-controller", false, "the stand-in has none")
	f.BoolVar(&s.noNetworkPolicy, "disable-network-policy", false, "the stand-in enforces policies in any case")
	f.IntVar(&s.port, "https-listen-port", netplan.APIPort, "port of the API server")
	f.StringVar(&s.bindAddress, "bind-address", "", "the stand-in listens on 127.0.0.1 and the node's address")
	f.StringVar(&s.egress, "egress-selector-mode", egress.Agent, "agent, cluster, pod or disabled")
	f.StringArrayVar(&s.apiServer, "kube-apiserver-arg", nil, "flag for the API server, name=value")
	f.StringArrayVar(&s.controllers, "kube-controller-manager-arg", nil, "flag for the controller-manager, name=value")
	f.StringArrayVar(&s.kubeProxy, "kube-proxy-arg", nil, "flag for kube-proxy; nodeport-addresses alone is honoured")
	f.StringVar(&s.flannelBackend, "flannel-backend", "vxlan", "the stand-in has one node, which needs none")
	f.StringVar(&s.flannelIface, "flannel-iface", "", "as flannel-backend")
	f.StringVarP(&s.token, "token", "t", "", "no agent can join the stand-in")
	f.StringVarP(&s.logger, "log", "l", "", "the stand-in logs to its standard error")
	return f
}

// Parse makes a configuration of the arguments behind `k3s server`. It makes no folder yet.
func Parse(args []string) (*config.Config, error) {
	var s settings
	f := s.flags()
	for _, name := range foreign {
		f.String(name, "", "")
		_ = f.MarkHidden(name)
		f.Lookup(name).NoOptDefVal = "true"
	}
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if err := s.readFiles(f); err != nil {
		return nil, err
	}
	for _, name := range foreign {
		if f.Changed(name) {
			return nil, fmt.Errorf("--%s is a flag of K3s which this stand-in does not honour", name)
		}
	}
	return s.complete()
}

// readFiles sets what the files set, unless the command line did, which wins also where several values are possible.
func (s *settings) readFiles(f *pflag.FlagSet) error {
	if _, err := os.Stat(s.config); err != nil && (f.Changed("config") || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("config file: %w", err)
	}
	values, err := k3sconfig.Read(s.config)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	f.Visit(func(flag *pflag.Flag) { given[flag.Name] = true })
	for key, list := range values {
		flag := f.Lookup(key)
		switch {
		case flag == nil || key == "config":
			return fmt.Errorf("flag provided but not defined: -%s (in %s)", key, s.config)
		case given[key]:
			continue
		case len(list) == 0:
			list = []string{"true"} // a key without a value is a flag without one
		}
		for _, value := range list {
			if err := f.Set(key, value); err != nil {
				return fmt.Errorf("%s in %s: %w", key, s.config, err)
			}
		}
	}
	return nil
}

func (s *settings) complete() (*config.Config, error) {
	c := config.Default()
	var err error
	if c.ClusterCIDR, err = only("cluster-cidr", s.clusterCIDR, netip.ParsePrefix); err != nil {
		return nil, err
	}
	if c.ServiceCIDR, err = only("service-cidr", s.serviceCIDR, netip.ParsePrefix); err != nil {
		return nil, err
	}
	ranges := netplan.Cluster{Pods: c.ClusterCIDR, Services: c.ServiceCIDR}
	if err := ranges.Validate(); err != nil {
		return nil, err
	}
	c.PodCIDR, c.ClusterDNS = ranges.NodePods(), ranges.DNS()
	if len(s.clusterDNS) > 0 {
		if c.ClusterDNS, err = only("cluster-dns", s.clusterDNS, netip.ParseAddr); err != nil {
			return nil, err
		}
	}
	if c.NodeIP, err = s.address(); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{egress.Agent, egress.Cluster, egress.Pod, egress.Disabled}, s.egress) {
		return nil, fmt.Errorf("egress-selector-mode %q: want agent, cluster, pod or disabled", s.egress)
	}
	mode, err := strconv.ParseUint(s.writeKubeconfigMode, 8, 9)
	if err != nil {
		return nil, fmt.Errorf("write-kubeconfig-mode %q: want an octal mode", s.writeKubeconfigMode)
	}
	c.NodeName, c.Port = s.nodeName, s.port
	c.DataDir, c.RunDir = filepath.Join(s.dataDir, "server"), "/run/k3s"
	c.ImagesDir, c.WriteKubeconfig = filepath.Join(s.dataDir, "agent", "images"), s.writeKubeconfig
	c.Expose = config.ExposeLAN // as kube-proxy has it
	c.K3s = config.K3s{
		Stands: true, Names: s.tlsSAN, KubeconfigMode: fs.FileMode(mode), Egress: s.egress != egress.Disabled,
		NoScheduler: s.noScheduler, NoControllers: s.noControllers,
	}
	if c.K3s.APIServer, err = components(s.apiServer); err != nil {
		return nil, fmt.Errorf("kube-apiserver-arg: %w", err)
	}
	if c.K3s.Controllers, err = components(s.controllers); err != nil {
		return nil, fmt.Errorf("kube-controller-manager-arg: %w", err)
	}
	proxy, err := components(s.kubeProxy)
	if err != nil {
		return nil, fmt.Errorf("kube-proxy-arg: %w", err)
	}
	for name := range proxy {
		if name != "nodeport-addresses" {
			return nil, fmt.Errorf("kube-proxy-arg: --%s is a flag of kube-proxy which this stand-in does not honour", name)
		}
		c.Expose = config.ExposeNone
	}
	return &c, nil
}

// only gives the one value of a flag that may have several in a cluster with two families of addresses.
func only[T any](name string, values []string, parse func(string) (T, error)) (T, error) {
	if len(values) != 1 {
		var none T
		return none, fmt.Errorf("%s %s: this stand-in has one, of IPv4", name, strings.Join(values, ","))
	}
	value, err := parse(values[0])
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return value, err
}

// components are flags for a component, as --kube-apiserver-arg has them; the last of a name holds.
func components(args []string) (map[string]string, error) {
	flags := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q: want name=value", arg)
		}
		flags[name] = value
	}
	return flags, nil
}

// address is the node's: the one given, or that by which packets leave for elsewhere. None is sent.
func (s *settings) address() (netip.Addr, error) {
	if s.nodeIP != "" {
		return netip.ParseAddr(s.nodeIP)
	}
	c, err := net.Dial("udp4", "192.0.2.1:9") // TEST-NET-1, RFC 5737
	if err != nil {
		return netip.Addr{}, errors.New("no default route found and no node-ip given")
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr(), nil
}

// Lay makes K3s' folders below its data directory, of which some are ours by another name.
func Lay(c *config.Config) error {
	data := filepath.Dir(c.DataDir)
	for _, dir := range []string{"server/cred", "server/manifests", "server/pki", "server/containerd", "agent/images", "agent/etc"} {
		if err := os.MkdirAll(filepath.Join(data, dir), 0o711); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{"server/tls": "pki", "agent/containerd": "../server/containerd", "agent/etc/containerd": "../../server/containerd"} {
		if err := os.Symlink(to, filepath.Join(data, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Chmod(filepath.Join(data, "server/pki"), 0o700)
}
