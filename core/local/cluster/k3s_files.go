package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"kith.dev/core/base/durable"
	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/core/net/netplan"
)

func (k *K3s) file() string       { return filepath.Join(k.dataDir, "config.yaml") }
func (k *K3s) kubeconfig() string { return filepath.Join(k.dataDir, "admin.kubeconfig") }

// dropin is read after those of the owner, who may set the rest as he likes.
func (k *K3s) dropin() string { return filepath.Join(k3sconfig.Dropins(k.file()), "zz-kith.yaml") }

// base is what K3s is told first.
func (k *K3s) base() map[string]any {
	c := k.cfg
	set := map[string]any{
		"data-dir": c.DataDir, "node-name": c.NodeName, "node-ip": c.Network.Node().String(),
		"cluster-cidr": c.Network.Pods.String(), "service-cidr": c.Network.Services.String(), "cluster-dns": c.Network.DNS().String(),
		"flannel-backend": "host-gw", "flannel-iface": netplan.Node, // one node, whose address is on a device of its own: nothing to encapsulate
		"tls-san": []string{c.Network.Node().String(), c.NodeName},
		"disable": []string{"traefik", "servicelb"}, // Kith opens services to the LAN itself, where the owner says so
	}
	if !c.ExposeLAN {
		set["kube-proxy-arg"] = []string{"nodeport-addresses=127.0.0.0/8," + c.Network.Node().String() + "/32"}
	}
	return set
}

// last is what K3s is told last, whatever the owner says.
func (k *K3s) last() map[string]any {
	set := map[string]any{
		"write-kubeconfig": k.kubeconfig(), "write-kubeconfig-mode": "0600",
		"egress-selector-mode": "disabled", // virtual nodes have no tunnel
	}
	if !k.Decides() {
		maps.Copy(set, undecided())
	}
	return set
}

// undecided has a K3s decide nothing, and go on with all else. K3s has --disable-controller-manager, too; but then no namespace of a tenant
// gets its service account, so that no pod can be made there, and none is ever cleared away.
func undecided() map[string]any {
	return map[string]any{
		"disable-scheduler":            true,
		"kube-controller-manager-arg+": []string{"controllers=" + strings.Join(housekeeping, ",")},
	}
}

// housekeeping are the controllers that decide nothing. They are named one by one, for a K3s may be newer than this list and have others that
// do; each is known to every Kubernetes from 1.28 on, and one that is not known keeps K3s from starting.
var housekeeping = []string{
	"certificatesigningrequest-approving-controller", "certificatesigningrequest-cleaner-controller", "certificatesigningrequest-signing-controller",
	"clusterrole-aggregation-controller", "endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller",
	"garbage-collector-controller", "namespace-controller", "node-ipam-controller",
	"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller", "pod-garbage-collector-controller",
	"resourcequota-controller", "root-ca-certificate-publisher-controller", "serviceaccount-controller", "serviceaccount-token-controller",
	"token-cleaner-controller", "ttl-controller",
}

// written is a file's content.
func written(set map[string]any) []byte {
	text, err := yaml.Marshal(set)
	if err != nil {
		panic(err) // of strings and truths
	}
	return append([]byte("# Written by kithd. Put what you want otherwise into a file of its own in config.yaml.d.\n"), text...)
}

// wanted is all that K3s would be told, the owner's files included.
func (k *K3s) wanted() string {
	text := append(written(k.base()), written(k.last())...)
	files, _ := filepath.Glob(filepath.Join(k3sconfig.Dropins(k.file()), "*.y*ml"))
	for _, file := range files {
		if file != k.dropin() {
			one, err := os.ReadFile(file)
			text = fmt.Appendf(text, "\n%s %v\n%s", file, err, one)
		}
	}
	return string(text)
}

// merged is what K3s makes of what it would be told.
func (k *K3s) merged() (k3sconfig.Values, error) {
	if err := k.write(); err != nil {
		return nil, err
	}
	return k3sconfig.Read(k.file())
}

func (k *K3s) write() error {
	if err := os.MkdirAll(k3sconfig.Dropins(k.file()), 0o700); err != nil {
		return err
	}
	return errors.Join(durable.WriteFile(k.file(), written(k.base()), 0o600), durable.WriteFile(k.dropin(), written(k.last()), 0o600))
}

func (k *K3s) factsOf(all k3sconfig.Values) (Facts, error) {
	f := Facts{
		NodeName: all.Last("node-name"), Kubeconfig: k.kubeconfig(), Log: k.logFile(), Runtime: runtimeOf(all),
		Ours: true, Switchable: true, NodePorts: true,
	}
	var err error
	if f.Network, err = rangesOf(all, k.cfg.Network); err != nil {
		return f, err
	}
	if f.NodeIP, err = netip.ParseAddr(all.Last("node-ip")); err != nil {
		return f, fmt.Errorf("node-ip: %w", err)
	}
	port := uint64(netplan.APIPort)
	if text := all.Last("https-listen-port"); text != "" {
		if port, err = strconv.ParseUint(text, 10, 16); err != nil {
			return f, fmt.Errorf("https-listen-port: %w", err)
		}
	}
	f.API = netip.AddrPortFrom(f.NodeIP, uint16(port))
	return f, nil
}

// rangesOf are those of IPv4 in a configuration, or those given.
func rangesOf(all k3sconfig.Values, given netplan.Cluster) (netplan.Cluster, error) {
	for key, into := range map[string]*netip.Prefix{"cluster-cidr": &given.Pods, "service-cidr": &given.Services} {
		for text := range strings.SplitSeq(strings.Join(all[key], ","), ",") {
			if text == "" {
				continue
			}
			p, err := netip.ParsePrefix(strings.TrimSpace(text))
			if err != nil {
				return given, fmt.Errorf("%s: %w", key, err)
			}
			if p.Addr().Is4() {
				*into = p.Masked()
				break
			}
		}
	}
	return given, given.Validate()
}

func runtimeOf(all k3sconfig.Values) string {
	if at := strings.TrimPrefix(all.Last("container-runtime-endpoint"), "unix://"); at != "" {
		return at
	}
	return K3sRuntime
}
