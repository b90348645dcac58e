package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"kith.dev/core/api"
	"kith.dev/core/net/netplan"
	"kith.dev/daemon/config"
)

func (m Machine) kernel(_ context.Context, report func(api.Finding)) {
	if m.Engine != config.EngineNone {
		m.forwarding(report)
		tun(report)
	}
	if m.RunsCluster() {
		cgroup(report)
		bridged(report)
		packetFilter(report)
		volumes(report)
		protocols(protocolsFile, report)
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
			report(in.warn("forwarding", dotted+" cannot be read", err.Error(), "look again as root: sudo kith doctor"))
			return
		case v != "1" && m.PID == 0:
			report(in.ok("forwarding", "%s is %s; kithd turns it on", dotted, v))
			return
		case v != "1":
			report(sysctls(in.fail("forwarding", dotted+" is "+v, "pods and peers do not reach each other without it; another program turned it off after kithd turned it on", ""), setting{dotted, 1}))
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
		f := in.fail("tun", path+" cannot be opened: there can be no tunnels", err.Error(), "load the module: modprobe tun")
		if _, loaded := os.Stat("/sys/class/misc/tun"); loaded == nil && errors.Is(err, fs.ErrNotExist) {
			report(mending(f, "mkdir -p /dev/net", "mknod -m 666 "+path+" c 10 200"))
			return
		}
		report(loading(f, "tun"))
	}
}

// setting is a sysctl, in dots, and what it must be at least.
type setting struct {
	key   string
	least int
}

// sysctls has a finding mended by settings, unless the owner wants it otherwise.
func sysctls(f api.Finding, settings ...setting) api.Finding {
	var commands []string
	for _, s := range settings {
		if file := setByOwner(s.key, s.least); file != "" {
			f.Do = fmt.Sprintf("%s says so: set %s=%d there", file, s.key, s.least)
			return f
		}
		commands = append(commands, fmt.Sprintf("sysctl -w %s=%d", s.key, s.least))
	}
	return mending(f, commands...)
}

// loading has a finding mended by a module, unless the owner forbids it.
func loading(f api.Finding, module string) api.Finding {
	if file := forbidden(module); file != "" {
		f.Do = "the module " + module + " is kept from being loaded by " + file
		return f
	}
	return mending(f, "modprobe "+module)
}

// mending says what to do, and that it is safe to be done for the owner.
func mending(f api.Finding, commands ...string) api.Finding {
	f.Do = strings.Join(commands, "; ")
	f.Fix = commands
	return f
}

func bridged(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	switch v, err := sysctl("net/bridge/bridge-nf-call-iptables"); {
	case errors.Is(err, fs.ErrNotExist):
		report(loading(in.warn("bridge-netfilter", "packets between pods of this machine bypass the packet filter", "services that lead back to this machine may hang: the module br_netfilter is not loaded", ""), "br_netfilter"))
	case err == nil && v != "1":
		report(sysctls(in.warn("bridge-netfilter", "packets between pods of this machine bypass the packet filter", "services that lead back to this machine may hang: net.bridge.bridge-nf-call-iptables is "+v, ""),
			setting{"net.bridge.bridge-nf-call-iptables", 1}))
	default:
		report(in.ok("bridge-netfilter", "packets between pods of this machine pass the packet filter"))
	}
}

// packetFilter looks whether nftables works, and whether a firewall drops what is forwarded. The engine lets its pods
// through the chain that Docker and ufw use; others it leaves alone.
func packetFilter(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	_, err := exec.LookPath("nft")
	if err != nil {
		_, err = programOf("nft") // who is not root may not have it on PATH
	}
	if err != nil {
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
		report(loading(in.fail("nftables", "nftables does not work", err.Error(), ""), "nf_tables"))
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

// volumes looks whether the built-in Kubernetes can make volumes of guests, each a file system of its own (engine/storage).
func volumes(report func(api.Finding)) {
	_, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		_, err = programOf("mkfs.ext4")
	}
	if err != nil {
		report(about{area: api.AreaDisk}.warn("volumes", "peers get no volumes here", "the program mkfs.ext4, which makes them, is not installed", "install the package e2fsprogs"))
	}
}

// protocolsFile is protocols(5).
const protocolsFile = "/etc/protocols"

// protocols looks whether this machine knows the names of protocols: without them nft answers kube-proxy with numbers, which that does not take, and no
// service has an address that answers.
func protocols(path string, report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	text, err := os.ReadFile(path)
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			known[fields[0]] = true
		}
	}
	var missing []string
	for _, name := range []string{"tcp", "udp", "sctp"} {
		if !known[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		report(in.ok("protocols", "protocols have names"))
		return
	}
	why := "nft gives numbers in place of names then, which kube-proxy does not take: no service answers at its address"
	if err != nil {
		why = err.Error() + "; " + why
	}
	report(in.fail("protocols", path+" does not know "+strings.Join(missing, ", "), why, "install the package netbase (Debian) or setup (Fedora), and restart kithd: systemctl restart kithd"))
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

// What a machine gets that has too little: enough for a hundred pods beside an editor or two.
const (
	manyInstances = 1024
	manyWatches   = 524288
)

func inotify(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	const name, instances, watches = "inotify", "fs.inotify.max_user_instances", "fs.inotify.max_user_watches"
	limit := func(key string) int {
		text, err := sysctl(strings.ReplaceAll(key, ".", "/"))
		n, notANumber := strconv.Atoi(text)
		if err != nil || notANumber != nil {
			return -1
		}
		return n
	}
	// More than there is: of what is used up, twice as much.
	more := func(key string, least int, usedUp bool) setting {
		n := limit(key)
		if usedUp {
			n *= 2
		}
		return setting{key, max(n, least)}
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		why := fmt.Sprintf("%v: all %d of %s are used up, and pods may fail with \"too many open files\"", err, limit(instances), instances)
		report(sysctls(in.fail(name, "no more files can be watched", why, ""), more(instances, manyInstances, true), more(watches, manyWatches, false)))
		return
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, "/", unix.IN_DELETE_SELF); errors.Is(err, unix.ENOSPC) {
		why := fmt.Sprintf("all %d of %s are used up, and pods may fail with \"no space left on device\"", limit(watches), watches)
		report(sysctls(in.fail(name, "no more files can be watched", why, ""), more(instances, manyInstances, false), more(watches, manyWatches, true)))
		return
	}
	for _, s := range []setting{{instances, leastInstances}, {watches, leastWatches}} {
		if n := limit(s.key); n >= 0 && n < s.least {
			report(sysctls(in.warn(name, fmt.Sprintf("%s is only %d", s.key, n), "with many pods some fail with \"too many open files\"", ""),
				more(instances, manyInstances, false), more(watches, manyWatches, false)))
			return
		}
	}
	report(in.ok(name, "enough files can be watched"))
}

// needed are the cgroup controllers without which no pod is started.
var needed = []string{"cpu", "cpuset", "memory", "pids"}

// cgroup looks for the controllers in all hierarchies that are mounted, of both versions.
func cgroup(report func(api.Finding)) {
	in := about{area: api.AreaKernel}
	const name = "cgroup"
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		report(in.warn(name, "the cgroups of this machine are not known", err.Error(), "mount /proc, and look again"))
		return
	}
	there := controllers(string(mounts), func(mount string) string {
		text, _ := os.ReadFile(filepath.Join(mount, "cgroup.controllers"))
		return string(text)
	})
	var missing []string
	for _, c := range needed {
		if !slices.Contains(there, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		report(in.fail(name, "the cgroup controller "+strings.Join(missing, ", ")+" is missing", "without it no pod can be held to its limits, and none is started",
			"the kernel's command line turns it on: no cgroup_disable="+missing[0]+", and cgroup_enable="+missing[0]+" on boards that need it"))
		return
	}
	report(in.ok(name, "the cgroup controllers are there: %s", strings.Join(needed, ", ")))
}

// controllers are those of the cgroup hierarchies in a mountinfo file (proc_pid_mountinfo(5)). enabled reads cgroup.controllers of a
// mount of version 2; those of version 1 name theirs among their options.
func controllers(mountinfo string, enabled func(mount string) string) (all []string) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			all = append(all, strings.Fields(enabled(fields[4]))...)
		case "cgroup":
			all = append(all, strings.Split(kind[2], ",")...)
		}
	}
	return all
}
