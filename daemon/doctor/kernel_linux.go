package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"kith.dev/core/api"
	"kith.dev/core/netplan"
	"kith.dev/daemon/config"
)

func (m Machine) kernel(_ context.Context, report func(api.Finding)) {
	if m.Engine != config.EngineNone {
		m.forwarding(report)
		tun(report)
	}
	if m.RunsCluster() {
		bridged(report)
		packetFilter(report)
	}
	inotify(report)
}

func sysctl(key string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys", key))
	return strings.TrimSpace(string(b)), err
}

func (m Machine) forwarding(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	keys := []string{"net/ipv4/ip_forward"}
	if m.PID != 0 {
		keys = append(keys, "net/ipv4/conf/"+netplan.Tunnel+"/forwarding")
	}
	for _, key := range keys {
		v, err := sysctl(key)
		dotted := strings.ReplaceAll(key, "/", ".")
		switch {
		case errors.Is(err, fs.ErrNotExist):
			report(in.fail("forwarding", "the tunnel's device "+netplan.Tunnel+" is not there", "kithd makes it when its gateway starts", "see the log: journalctl -u kithd -e"))
			return
		case err != nil:
			report(in.warn("forwarding", dotted+" cannot be read", err.Error(), ""))
			return
		case v != "1" && m.PID == 0:
			report(in.ok("forwarding", "%s is %s; kithd turns it on", dotted, v))
			return
		case v != "1":
			report(in.fail("forwarding", dotted+" is "+v, "pods and peers do not reach each other without it; another program turned it off after kithd turned it on", "sysctl -w "+dotted+"=1"))
			return
		}
	}
	report(in.ok("forwarding", "packets are forwarded"))
}

func tun(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	const path = "/dev/net/tun"
	// Opening makes no device yet.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		unix.Close(fd)
		report(in.ok("tun", "%s can be opened", path))
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		report(in.ok("tun", "%s is there", path))
	default:
		report(in.fail("tun", path+" cannot be opened: there can be no tunnels", err.Error(), "load the module: modprobe tun"))
	}
}

func bridged(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	switch v, err := sysctl("net/bridge/bridge-nf-call-iptables"); {
	case errors.Is(err, fs.ErrNotExist):
		report(in.warn("bridge-netfilter", "packets between pods of this machine bypass the packet filter", "services that lead back to this machine may hang: the module br_netfilter is not loaded", "modprobe br_netfilter"))
	case err == nil && v != "1":
		report(in.warn("bridge-netfilter", "packets between pods of this machine bypass the packet filter", "services that lead back to this machine may hang: net.bridge.bridge-nf-call-iptables is "+v, "sysctl -w net.bridge.bridge-nf-call-iptables=1"))
	default:
		report(in.ok("bridge-netfilter", "packets between pods of this machine pass the packet filter"))
	}
}

// packetFilter looks whether nftables works, and whether a firewall drops what is forwarded. The engine lets its pods
// through the chain that Docker and ufw use; others it leaves alone.
func packetFilter(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	if _, err := exec.LookPath("nft"); err != nil {
		report(in.fail("nftables", "the program nft is not installed", "services of the local Kubernetes are made of its rules", "install the package nftables"))
		return
	}
	var chains []*nftables.Chain
	conn, err := nftables.New()
	if err == nil {
		chains, err = conn.ListChains()
	}
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return // only root can tell
	case err != nil:
		report(in.fail("nftables", "nftables does not work", err.Error(), "the kernel needs nf_tables: modprobe nf_tables"))
		return
	}
	report(in.ok("nftables", "nftables works"))
	for _, c := range chains {
		if drops(c) {
			report(in.warn("firewall", fmt.Sprintf("a firewall drops what is forwarded, unless it says otherwise: chain %s of table %s", c.Name, c.Table.Name),
				"pods may not reach peers, or peers pods", "let it forward from and to the devices "+netplan.Tunnel+" and "+netplan.Bridge))
		}
	}
}

func drops(c *nftables.Chain) bool {
	forward := c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Type == nftables.ChainTypeFilter
	relevant := c.Table.Family == nftables.TableFamilyIPv4 || c.Table.Family == nftables.TableFamilyINet
	iptables := c.Table.Name == "filter" && c.Name == "FORWARD"
	return forward && relevant && !iptables && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
}

// The least that a laptop with some pods needs: each container's log, each kubelet's watch and each editor takes some.
const (
	leastInstances = 128
	leastWatches   = 16384
)

func inotify(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	const do = "sysctl -w fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=524288, and the same in /etc/sysctl.d"
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		report(in.fail("inotify", "no more files can be watched", err.Error()+": pods may fail with \"too many open files\"", do))
		return
	}
	unix.Close(fd)
	for key, least := range map[string]int{"fs/inotify/max_user_instances": leastInstances, "fs/inotify/max_user_watches": leastWatches} {
		text, err := sysctl(key)
		n, notANumber := strconv.Atoi(text)
		if err == nil && notANumber == nil && n < least {
			report(in.warn("inotify", fmt.Sprintf("%s is only %d", strings.ReplaceAll(key, "/", "."), n), "with many pods some fail with \"too many open files\"", do))
			return
		}
	}
	report(in.ok("inotify", "enough files can be watched"))
}
