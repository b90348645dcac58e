// Package network prepares the laptop's network for pods: the node's device, kernel settings, the CNI
// configuration, and one nftables table of the engine's own. The server calls Setup at every start; all of
// it is idempotent and stays when the server ends, because the pods stay.
//
// It must never touch a device, route or rule that is not the engine's, with one exception that is named
// where it happens (allowForwarding).
package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"kith.dev/core/net/hostnet"
	"kith.dev/core/net/netplan"
	"kith.dev/core/net/nodedevice"
)

// Options say what the pods' network looks like.
type Options struct {
	NodeIP      netip.Addr
	PodCIDR     netip.Prefix
	ServiceCIDR netip.Prefix
	IPv6        netplan.Cluster6 // of a cluster with one node alone; the zero value: IPv4 alone
	MTU         int
	CNIConf     string // folder for the CNI configuration
	GuestConf   string // folder for the CNI configuration of guests
	CNIData     string // folder where host-local notes the addresses given
	Policies    string // socket where kith-mark asks whether a new pod's NetworkPolicies are in force

	GuestNetworks string // folder where kith-mark finds the range of the guests of a namespace

	// Cluster says that there are other nodes, or may be: their pods and they themselves reach this node, see Others. The node's address may
	// then be one that the machine has on its LAN.
	Cluster bool
	DNSPort int // of the cluster's DNS on the node's address, which the LAN must not reach

	// Flannel is the cluster's range of pods where these are hidden as flannel hides them (package k3s): behind the node's address towards
	// whatever is outside that range, also behind the gateway, and nobody on the LAN is kept out. The zero value: as Kith does it.
	Flannel netip.Prefix
}

// PluginDir is where the CNI plugins are, given the runtime folder. They have a folder of their own because
// one is called `bridge`, as a program of iproute2 is.
func PluginDir(runtimeDir string) string { return filepath.Join(runtimeDir, "cni") }

// Setup makes everything, in an order in which each step finds what it needs.
func Setup(ctx context.Context, o Options, log *slog.Logger) error {
	onLAN, err := elsewhere(netplan.Node, o.NodeIP)
	if err != nil {
		return err
	}
	switch {
	case onLAN != "" && !o.Cluster && !o.Flannel.IsValid():
		return fmt.Errorf("node-ip %s is the address of the device %s: to have other nodes join there say --agents; otherwise leave it out, and this node has one of its own", o.NodeIP, onLAN)
	case onLAN == "":
		addrs, ways := []netip.Addr{o.NodeIP}, map[netip.Prefix]netip.Addr{o.ServiceCIDR: o.NodeIP}
		if o.hasIPv6() {
			addrs, ways[o.IPv6.Services] = append(addrs, o.IPv6.Node()), o.IPv6.Node()
		}
		if err := nodedevice.Ensure(netplan.Node, addrs...); err != nil {
			return fmt.Errorf("node device %s: %w", netplan.Node, err)
		}
		for services, from := range ways {
			if err := wayToServices(netplan.Node, services, from); err != nil {
				return fmt.Errorf("route to services %s: %w", services, err)
			}
		}
	}
	if err := kernelSettings(o, log); err != nil {
		return err
	}
	if err := writeCNI(o); err != nil {
		return fmt.Errorf("CNI configuration: %w", err)
	}
	if err := rules(ctx, o, onLAN != ""); err != nil {
		return fmt.Errorf("nftables table %s: %w; is nftables installed and does the kernel have nf_tables?", Table, err)
	}
	programs := []string{"iptables"}
	if o.hasIPv6() {
		programs = append(programs, "ip6tables")
	}
	for _, program := range programs {
		if err := allowForwarding(ctx, program); err != nil {
			log.Warn("cannot allow forwarding for pods; they may not reach anything outside the laptop", "err", err)
		}
	}
	return nil
}

func (o Options) hasIPv6() bool { return o.IPv6.Pods.IsValid() }

// elsewhere gives the name of the device that has addr and is not ours; "" for none.
func elsewhere(ours string, addr netip.Addr) (string, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range list {
		if !a.IP.Equal(addr.AsSlice()) {
			continue
		}
		link, err := netlink.LinkByIndex(a.LinkIndex)
		if err != nil {
			return "", fmt.Errorf("device of %s: %w", addr, err)
		}
		if name := link.Attrs().Name; name != ours {
			return name, nil
		}
	}
	return "", nil
}

// kernelSettings turns forwarding on, and makes packets between two pods of one bridge pass netfilter:
// without it the answer of a pod reached through a service goes straight across the bridge, past the
// translation back, and is dropped by the one who asked.
func kernelSettings(o Options, log *slog.Logger) error {
	if err := set("net/ipv4/ip_forward", "1"); err != nil {
		return fmt.Errorf("forwarding: %w; run as root", err)
	}
	filtered := []string{"net/bridge/bridge-nf-call-iptables"}
	if o.hasIPv6() {
		if err := hostnet.Forward6(); err != nil {
			return err
		}
		filtered = append(filtered, "net/bridge/bridge-nf-call-ip6tables")
	}
	if _, err := os.Stat(filepath.Join("/proc/sys", filtered[0])); err != nil {
		_ = exec.Command("modprobe", "br_netfilter").Run() // seen by its effect
	}
	for _, key := range filtered {
		if err := set(key, "1"); err != nil {
			log.Warn("packets between pods of this node bypass netfilter: services that lead back to the same node may hang; load the module br_netfilter", "err", err)
		}
	}
	return nil
}

func set(key, value string) error {
	path := filepath.Join("/proc/sys", key)
	b, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(b)) == value {
		return nil // it may be right and read-only
	}
	return os.WriteFile(path, []byte(value), 0)
}

type m = map[string]any

const podsConf = "10-kith.conflist"

// Withhold takes the pods' network, as it was written to the folder conf, from the container runtime, unless it has this range of pods. Until Setup
// writes it again no pod starts: of a node that joined its cluster anew the range may be another, and an address of the old one leads nowhere.
func Withhold(conf string, unless netip.Prefix) error {
	path := filepath.Join(conf, podsConf)
	written, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && unless.IsValid() && bytes.Contains(written, []byte(strconv.Quote(unless.String()))) {
		return nil
	}
	return errors.Join(err, os.Remove(path))
}

// writeCNI writes the networks: one for the pods of this cluster, one for guests.
func writeCNI(o Options) error {
	if err := writeConf(o.CNIConf, podsConf, podNetwork(o)); err != nil {
		return err
	}
	return writeConf(o.GuestConf, "10-kith-guests.conflist", guestNetwork(o))
}

// podNetwork is a bridge with local addresses, NetworkPolicies in force before a pod starts, host ports, and no masquerading by the plugin, because the engine's
// table does it and spares the gateway.
func podNetwork(o Options) m {
	return m{
		"cniVersion": "1.0.0",
		"name":       "kith",
		"plugins": []m{
			{
				"type": "bridge", "bridge": netplan.Bridge, "isGateway": true, "ipMasq": false, "hairpinMode": true, "mtu": o.MTU,
				"ipam": localAddresses(o),
			},
			{"type": "kith-mark", "policies": o.Policies},
			{"type": "portmap", "backend": "nftables", "capabilities": m{"portMappings": true}},
		},
	}
}

func localAddresses(o Options) m {
	ranges, routes := [][]m{{{"subnet": o.PodCIDR.String()}}}, []m{{"dst": "0.0.0.0/0"}}
	if o.hasIPv6() {
		ranges, routes = append(ranges, []m{{"subnet": o.IPv6.NodePods().String()}}), append(routes, m{"dst": "::/0"})
	}
	return m{"type": "host-local", "dataDir": o.CNIData, "ranges": ranges, "routes": routes}
}

func writeConf(folder, name string, conf m) error {
	b, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// containerd watches the folder: never show it half a file.
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
