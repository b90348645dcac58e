package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"kith.dev/core/api"
	"kith.dev/core/find/discovery/mdns"
)

// apart has the test on a machine of its own, as far as it is made of network and mounts: with a LAN, eth0, that nobody else is on. It
// ends with the test.
func apart(t *testing.T) netlink.Link {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	runtime.LockOSThread() // and never unlocked: the thread goes with the test
	ns, err := netns.New()
	must(t, err)
	t.Cleanup(func() { ns.Close() })
	must(t, unix.Unshare(unix.CLONE_NEWNS))
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "vethswitch"}))
	eth, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.AddrAdd(eth, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 168, 7, 2), Mask: net.CIDRMask(24, 32)}}))
	for _, name := range []string{"lo", "vethswitch", "eth0"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
	}
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.IPv4(192, 168, 7, 1)}))
	return eth
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ourMounts ends the test unless this thread has mounts of its own.
func ourMounts(t *testing.T) {
	t.Helper()
	if ours, err := os.Readlink("/proc/thread-self/ns/mnt"); err != nil || machinesMounts == "" || ours == machinesMounts {
		t.Fatal("the mounts of this thread are the machine's: ", err)
	}
}

var machinesMounts, _ = os.Readlink("/proc/thread-self/ns/mnt") // before any test

// instead has a file say something else to this test alone.
func instead(t *testing.T, path, text string) (undo func()) {
	t.Helper()
	ourMounts(t)
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte(text), 0o644))
	must(t, unix.Mount(file, path, "", unix.MS_BIND, ""))
	return func() { must(t, unix.Unmount(path, unix.MNT_DETACH)) }
}

// emptied has a folder be empty for this test alone.
func emptied(t *testing.T, path string) {
	t.Helper()
	ourMounts(t)
	must(t, unix.Mount("tmpfs", path, "tmpfs", 0, "mode=755"))
}

// look makes the checks of a group in this thread.
func look(t *testing.T, g Group) map[string]api.Finding {
	t.Helper()
	found := map[string]api.Finding{}
	g(t.Context(), func(f api.Finding) {
		if old, twice := found[f.Name]; !twice || old.State == api.CheckOK {
			found[f.Name] = f
		}
	})
	return found
}

// mends carries out what a finding says that mends it, in this thread.
func mends(t *testing.T, f api.Finding) {
	t.Helper()
	if len(f.Fix) == 0 || f.Do == "" {
		t.Fatalf("not to be mended: %+v", f)
	}
	if done, err := carryOut(t.Context(), f.Fix); err != nil || len(done) != len(f.Fix) {
		t.Fatalf("%v: did %q", err, done)
	}
}

func TestNothingIsFoundOnAHealthyLAN(t *testing.T) {
	apart(t)
	instead(t, "/etc/resolv.conf", "nameserver 192.168.7.1\n")
	for name, f := range look(t, machine().network) {
		if f.State != api.CheckOK {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestAFilterOfMulticastIsFound(t *testing.T) {
	for _, hook := range []*nftables.ChainHook{nftables.ChainHookInput, nftables.ChainHookOutput} {
		t.Run(strconv.Itoa(int(*hook)), func(t *testing.T) {
			apart(t)
			c, err := nftables.New()
			must(t, err)
			table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "firewall"})
			chain := c.AddChain(&nftables.Chain{Name: "all", Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter})
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{unix.IPPROTO_UDP}},
				&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, &expr.Cmp{Register: 1, Data: []byte{5353 >> 8, 5353 & 0xff}},
				&expr.Verdict{Kind: expr.VerdictDrop},
			}})
			must(t, c.Flush())
			f := look(t, machine().network)["multicast"]
			if f.State != api.CheckFail || !strings.Contains(f.What, "eth0") || len(f.Fix) > 0 {
				t.Errorf("%+v", f)
			}
			m := machine()
			m.Discovery.LAN = false
			if f, looked := look(t, m.network)["multicast"]; looked {
				t.Errorf("nobody is looked for on the LAN: %+v", f)
			}
		})
	}
	if f := multicast(about{}, nil); f.State != api.CheckOK {
		t.Errorf("without a LAN: %+v", f)
	}
	if f := multicast(about{}, []mdns.Echo{{Interface: "eth0", Err: errors.New("operation not permitted")}}); !strings.Contains(f.Why, "not permitted") {
		t.Errorf("%+v", f)
	}
}

func TestASmallMTUIsFound(t *testing.T) {
	eth := apart(t)
	must(t, netlink.LinkSetMTU(eth, 1280))
	if f := look(t, machine().network)["mtu"]; f.State != api.CheckWarning || !strings.Contains(f.What, "eth0 takes packets of 1280 bytes") {
		t.Errorf("%+v", f)
	}
}

func TestDNSThatPointsAtItselfIsFound(t *testing.T) {
	apart(t)
	emptied(t, "/run")
	for text, want := range map[string]api.CheckState{
		"nameserver 127.0.0.1\n":                         api.CheckFail,
		"nameserver 127.0.0.53\noptions edns0\n":         api.CheckFail,
		"nameserver ::1\n":                               api.CheckFail,
		"nameserver 192.168.7.2\n":                       api.CheckFail, // its own address, where nobody answers
		"nameserver 10.43.0.10\n":                        api.CheckFail, // the cluster's
		"nameserver 127.0.0.1\nnameserver 192.168.7.1\n": api.CheckOK,
		"nameserver 9.9.9.9\n":                           api.CheckOK,
		"search lan\n":                                   api.CheckOK,
	} {
		undo := instead(t, "/etc/resolv.conf", text) // not in a test of its own: that would run on another thread
		if f := look(t, machine().network)["resolver"]; f.State != want {
			t.Errorf("%q: %+v", text, f)
		}
		undo()
	}
}

func TestWhoAnswersDNSToOthersDoesSoToPods(t *testing.T) {
	const table = "  sl  local_address rem_address   st tx_queue rx_queue\n" +
		" 1: 0100007F:0035 00000000:0000 07\n 2: 0207A8C0:0035 00000000:0000 07\n 3: 0107A8C0:14E9 00000000:0000 07\n"
	if got := answersDNS(table); len(got) != 2 || got[0] != netip.MustParseAddr("127.0.0.1") || got[1] != netip.MustParseAddr("192.168.7.2") {
		t.Error(got)
	}
}

func TestALANInTheRangesIsFound(t *testing.T) {
	eth := apart(t)
	must(t, netlink.AddrAdd(eth, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 42, 9, 2), Mask: net.CIDRMask(24, 32)}}))
	if f := look(t, machine().addresses)["pod-range"]; f.State != api.CheckWarning || !strings.Contains(f.Why, "10.42.9.0/24") {
		t.Errorf("%+v", f)
	}
}

func TestForwardingIsTurnedOnUnlessTheOwnerTurnedItOff(t *testing.T) {
	apart(t)
	m := machine()
	m.PID = os.Getpid()
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0))
	off := func() api.Finding {
		return look(t, func(_ context.Context, report func(api.Finding)) { m.forwarding(report) })["forwarding"]
	}
	emptied(t, "/etc")
	must(t, os.Mkdir("/etc/sysctl.d", 0o755))
	must(t, os.WriteFile("/etc/sysctl.d/10-mine.conf", []byte("# mine\nnet/ipv4/ip_forward = 0\n"), 0o644))
	if f := off(); f.State != api.CheckFail || len(f.Fix) > 0 || !strings.Contains(f.Do, "/etc/sysctl.d/10-mine.conf") {
		t.Errorf("%+v", f)
	}
	must(t, os.Remove("/etc/sysctl.d/10-mine.conf"))
	mends(t, off())
	if v, err := sysctl("net/ipv4/ip_forward"); v != "1" {
		t.Error(v, err)
	}
}

func TestTheDeviceOfTunnelsIsMadeAgain(t *testing.T) {
	apart(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("this machine has no tunnels itself")
	}
	emptied(t, "/dev/net")
	found := func() api.Finding {
		return look(t, func(_ context.Context, report func(api.Finding)) { tun(report) })["tun"]
	}
	f := found()
	if f.State != api.CheckFail {
		t.Fatalf("%+v", f)
	}
	mends(t, f)
	if f := found(); f.State != api.CheckOK {
		t.Errorf("%+v", f)
	}
	emptied(t, "/etc")
	must(t, errors.Join(os.Mkdir("/etc/modprobe.d", 0o755), os.WriteFile("/etc/modprobe.d/mine.conf", []byte("blacklist tun\n"), 0o644)))
	if f := loading(api.Finding{}, "tun"); len(f.Fix) > 0 || !strings.Contains(f.Do, "mine.conf") {
		t.Errorf("a module that the owner forbids: %+v", f)
	}
}

func TestFewWatchesAreMadeMore(t *testing.T) {
	apart(t)
	const instances, watches = "/proc/sys/fs/inotify/max_user_instances", "/proc/sys/fs/inotify/max_user_watches"
	instead(t, instances, "8\n")
	instead(t, watches, "4096\n")
	found := func() api.Finding {
		return look(t, func(_ context.Context, report func(api.Finding)) { inotify(report) })["inotify"]
	}
	f := found()
	if f.State != api.CheckWarning || !strings.Contains(f.What, "is only 8") {
		t.Fatalf("%+v", f)
	}
	mends(t, f)
	if f := found(); f.State != api.CheckOK {
		t.Errorf("%+v", f)
	}
}

// TestExhaustedWatchesAreFound has a user of its own, who may have none: others are not to notice.
func TestExhaustedWatchesAreFound(t *testing.T) {
	for key, want := range map[string]string{"max_inotify_instances": "max_user_instances", "max_inotify_watches": "max_user_watches"} {
		t.Run(key, func(t *testing.T) {
			if os.Getenv("KITH_TEST_USER") != "" {
				must(t, os.WriteFile("/proc/sys/user/"+key, []byte("0"), 0))
				f := look(t, func(_ context.Context, report func(api.Finding)) { inotify(report) })["inotify"]
				if f.State != api.CheckFail || !strings.Contains(f.Why, want) || len(f.Fix) != 2 {
					t.Errorf("%+v", f)
				}
				return
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestExhaustedWatchesAreFound$/^"+key+"$", "-test.v")
			cmd.Env = append(os.Environ(), "KITH_TEST_USER=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  unix.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
				t.Skip("no user namespaces here: ", err)
			}
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestCgroupControllersAreLookedForInBothVersions(t *testing.T) {
	const v1 = "30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
		"32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\nnonsense\n"
	got := controllers(v1, func(mount string) string {
		if mount != "/sys/fs/cgroup/unified" {
			t.Error(mount)
		}
		return "memory cpuset\n"
	})
	for _, c := range needed {
		if !slices.Contains(got, c) {
			t.Errorf("%s is not in %v", c, got)
		}
	}
	if got := controllers("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", func(string) string { return "cpu io" }); slices.Contains(got, "memory") {
		t.Error(got)
	}
}

func TestAMissingCgroupControllerIsFound(t *testing.T) {
	apart(t)
	if f := look(t, func(_ context.Context, report func(api.Finding)) { cgroup(report) })["cgroup"]; f.State != api.CheckOK {
		t.Skipf("not on this machine: %+v", f)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		instead(t, "/sys/fs/cgroup/cgroup.controllers", "cpu io memory cpuset\n")
	} else {
		must(t, unix.Unmount("/sys/fs/cgroup/pids", unix.MNT_DETACH))
	}
	if f := look(t, func(_ context.Context, report func(api.Finding)) { cgroup(report) })["cgroup"]; f.State != api.CheckFail || !strings.Contains(f.What, "pids") || len(f.Fix) > 0 {
		t.Errorf("%+v", f)
	}
}

func TestAFullDiskIsFound(t *testing.T) {
	apart(t)
	m := machine()
	m.DataDir = t.TempDir()
	ourMounts(t)
	must(t, unix.Mount("tmpfs", m.DataDir, "tmpfs", 0, "size=300m"))
	t.Cleanup(func() { unix.Unmount(m.DataDir, unix.MNT_DETACH) })
	full, err := os.Create(filepath.Join(m.DataDir, "filler"))
	must(t, err)
	must(t, unix.Fallocate(int(full.Fd()), 0, 0, 297<<20))
	full.Close()
	if f := look(t, m.disk)["space"]; f.State != api.CheckFail {
		t.Errorf("%+v", f)
	}
}

func TestASocketThatIsNotTheGroupsIsGivenBack(t *testing.T) {
	apart(t)
	m := machine()
	m.PID = os.Getpid()
	undo := instead(t, "/etc/group", "root:x:0:\nkith:x:4242:\n")
	dir, err := os.MkdirTemp("/tmp", "kith-doctor-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	m.Socket = filepath.Join(dir, "kith.sock")
	if f := look(t, m.socket)["socket"]; f.State != api.CheckFail || len(f.Fix) > 0 {
		t.Errorf("it is not there: %+v", f)
	}
	l, err := net.Listen("unix", m.Socket)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	f := look(t, m.socket)["socket"]
	if f.State != api.CheckFail {
		t.Fatalf("%+v", f)
	}
	mends(t, f)
	if f := look(t, m.socket)["socket"]; f.State != api.CheckOK {
		t.Errorf("%+v", f)
	}
	must(t, os.Chmod(m.Socket, 0o600))
	if f := look(t, m.socket)["socket"]; f.State != api.CheckFail || !strings.Contains(f.What, "may not use") {
		t.Errorf("%+v", f)
	}
	must(t, os.Chmod(dir, 0o777)) // where somebody else may put a link in its place, and have that changed
	if f := look(t, m.socket)["socket"]; f.State != api.CheckFail || len(f.Fix) > 0 || f.Do == "" {
		t.Errorf("in a folder of everybody's: %+v", f)
	}
	must(t, os.Chmod(dir, 0o755))
	moved := m
	moved.Socket = filepath.Join(dir, "link.sock")
	must(t, os.Symlink("/etc/group", moved.Socket))
	if f := look(t, moved.socket)["socket"]; f.State != api.CheckFail || len(f.Fix) > 0 || !strings.Contains(f.What, "something else") {
		t.Errorf("a link in its place: %+v", f)
	}
	undo()
	instead(t, "/etc/group", "root:x:0:\n")
	if f := look(t, m.socket)["socket"]; f.State != api.CheckWarning {
		t.Errorf("no group: %+v", f)
	}
	for _, word := range []string{"", "-x", "a b", "a;b", "$(a)", "a\nb"} {
		if plain(word) {
			t.Errorf("%q", word)
		}
	}
}

func TestAPortThatIsTakenIsFound(t *testing.T) {
	apart(t)
	l, err := net.Listen("tcp", ":6450")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	if f := look(t, machine().ports)["peer-api"]; f.State == api.CheckOK || !strings.Contains(f.What, "TCP port 6450") {
		t.Errorf("%+v", f)
	}
}

func TestOnlyWhatChecksMakeIsCarriedOut(t *testing.T) {
	for _, command := range []string{"rm -rf /nowhere", "sh -c true", "/bin/sh"} {
		if done, err := carryOut(t.Context(), []string{command, "chmod 600 /nowhere"}); err == nil || len(done) > 0 {
			t.Errorf("%s: %v", command, done)
		}
	}
	if done, err := carryOut(t.Context(), []string{"chmod 600 /nowhere"}); err == nil || len(done) > 0 || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("%v %v", done, err)
	}
}

// standIn puts a program, and files beside it, where those of root are, for this test alone.
func standIn(t *testing.T, name, script string, files map[string]string) {
	t.Helper()
	const dir = "/usr/local/sbin"
	emptied(t, dir)
	must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	for file, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
}

func TestMendLooksItselfAndAgain(t *testing.T) {
	in := about{area: api.AreaKernel}
	few := mending(in.warn("inotify", "", "", ""), "sysctl -w a=1", "sysctl -w b=2")
	for want, shown := range map[string][]string{"": {"sysctl -w b=2", "sysctl -w a=1", "other"}, "sysctl -w b=2": {"sysctl -w a=1"}, "sysctl -w a=1": {"sysctl -w a=2", "sysctl -w b=2"}} {
		if got := unseen(few, shown); got != want {
			t.Errorf("shown %q: %q, want %q", shown, got, want)
		}
	}
	if got := unseen(few, nil); got != "" {
		t.Errorf("nothing was shown, and it takes %q", got)
	}
	before, well, others := in.fail("tun", "", "", ""), in.ok("tun", "it is there"), about{area: api.AreaDisk}.ok("tun", "another")
	for _, now := range [][]api.Finding{nil, {others}, {before}, {well, before}, {before, well}} {
		if f := again(before, now); f.State == api.CheckOK {
			t.Errorf("%+v: %+v", now, f)
		}
	}
	if f := again(before, []api.Finding{others, well}); f.State != api.CheckOK {
		t.Errorf("%+v", f)
	}
	if fixed := machine().Mend(t.Context(), api.DoctorFix{Findings: []string{"nothing", "; rm -rf /"}, Shown: []string{"rm -rf /"}}, func(string) { t.Error("something is done") }); len(fixed) != 0 {
		t.Errorf("%+v", fixed)
	}
}
