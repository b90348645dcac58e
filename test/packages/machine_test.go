//go:build packages

package packages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kith.dev/test/lab/cgroups"
)

// machine is a Debian that was booted.
type machine struct {
	t     *testing.T
	root  string // its disk
	name  string // of its network namespace and its cgroups
	group cgroups.Group
	nspawn
}

// nspawn is one life of a machine, from a boot to the next.
type nspawn struct {
	cmd  *exec.Cmd
	init int // its first process
	done chan error
}

// settings is a unit of the machine that makes of what nspawn keeps from it what a laptop has: cgroups of version 1 that can be written,
// and settings of the kernel that kubelets write, which would be this machine's.
const settings = `[Unit]
Description=What a laptop has and a container has not
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'for m in $(grep -o "/sys/fs/cgroup/[^ ]* cgroup " /proc/mounts); do \
	case $m in /*) mount -o remount,rw,bind $m;; esac; done; \
	mkdir -p /run/settings; \
	for k in kernel/panic kernel/panic_on_oops vm/overcommit_memory vm/panic_on_oom kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do \
	f=/run/settings/$(echo $k | tr / -); cat /proc/sys/$k >$f; mount --bind $f /proc/sys/$k; done; \
	ip link set lo up'
`

// newMachine makes a Debian of that suite, out of a copy of one that debootstrap made once.
func newMachine(t *testing.T, suite string) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("machines need root")
	}
	for _, program := range []string{"debootstrap", "systemd-nspawn", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: scripts/deps.sh", program)
		}
	}
	pristine, err := filepath.Abs("../../build/machines/" + suite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pristine); err != nil {
		making := pristine + ".new"
		must(t, "rm", "-rf", making)
		must(t, "debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,iproute2,nftables,procps,kmod,ca-certificates", suite, making, "http://deb.debian.org/debian")
		must(t, "rm", "-rf", making+"/var/cache/apt/archives")
		must(t, "mv", making, pristine)
	}
	m := &machine{t: t, root: filepath.Join(t.TempDir(), suite), name: fmt.Sprintf("kith-packages-%d", os.Getpid())}
	must(t, "cp", "-a", "--reflink=auto", pristine, m.root)
	m.write("/etc/hostname", "laptop\n")
	m.write("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 laptop\n")
	m.write("/etc/resolv.conf", "")
	m.write("/etc/systemd/system/settings.service", settings)
	m.write("/etc/systemd/system/sysinit.target.wants/.keep", "")
	if err := os.Symlink("../settings.service", m.root+"/etc/systemd/system/sysinit.target.wants/settings.service"); err != nil {
		t.Fatal(err)
	}
	must(t, "chroot", m.root, "useradd", "-m", "alice")

	must(t, "ip", "netns", "add", m.name)
	t.Cleanup(func() { must(t, "ip", "netns", "del", m.name) })
	hierarchies, err := cgroups.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	m.group = cgroups.Group{Name: m.name, Hierarchies: hierarchies}
	if err := m.group.Make(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.removeCgroups)
	m.boot()
	t.Cleanup(m.off)
	return m
}

// boot starts the machine and waits for its systemd.
func (m *machine) boot() {
	m.t.Helper()
	enter := "for h in"
	for _, h := range m.group.Hierarchies {
		enter += " " + filepath.Join(h.Mount, m.group.Name)
	}
	enter += `; do echo 0 >$h/cgroup.procs; done; exec "$@"`
	cmd := exec.Command("sh", "-ec", enter, "sh", "nsenter", "--net=/run/netns/"+m.name, "systemd-nspawn", "--quiet", "--boot", "--directory="+m.root, "--machine="+m.name,
		"--register=no", "--keep-unit", "--console=pipe", "--capability=all", "--system-call-filter=@keyring bpf", "--bind=/dev/net/tun", "--bind=/dev/kmsg")
	if slices.ContainsFunc(m.group.Hierarchies, func(h cgroups.Hierarchy) bool { return !h.V2 }) {
		// From 256 on systemd wants to be told twice that version 1 is meant; in a container its arguments are its kernel's.
		cmd.Args = append(cmd.Args, "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
	}
	// Settings of its own network.
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.nspawn = nspawn{cmd: cmd, done: make(chan error, 1)}
	go func() { m.done <- cmd.Wait() }()
	m.eventually(30*time.Second, "systemd is up", func() error {
		select {
		case err := <-m.done:
			m.t.Fatalf("systemd-nspawn: %v\n%s", err, console.String())
		default:
		}
		if m.init == 0 {
			pid := cmd.Process.Pid
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
			children := strings.Fields(string(b))
			if err != nil || len(children) == 0 {
				return fmt.Errorf("no first process: %v", err)
			}
			child, _ := strconv.Atoi(children[0])
			if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child)); strings.TrimSpace(string(comm)) != "systemd" {
				return fmt.Errorf("the first process is %s", comm)
			}
			m.init = child
		}
		switch out, err := m.try("systemctl", "is-system-running"); strings.TrimSpace(out) {
		case "running", "degraded":
			return nil
		default:
			return fmt.Errorf("%s: %v", out, err)
		}
	})
}

// reboot has the machine reboot itself. nspawn ends with 133 then, and its starter is to start it again.
func (m *machine) reboot() {
	m.t.Helper()
	_, _ = m.try("systemctl", "reboot")
	select {
	case <-m.done:
	case <-time.After(time.Minute):
		m.t.Fatal("the machine does not end for a reboot")
	}
	m.boot()
}

func (m *machine) off() {
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.done:
	case <-time.After(20 * time.Second):
		_ = m.cmd.Process.Kill()
		<-m.done
	}
	// Containers are in sessions and groups of their own, and with the first process of their namespace all others end.
}

func (m *machine) removeCgroups() {
	for _, h := range m.group.Hierarchies {
		dir := filepath.Join(h.Mount, m.group.Name)
		for range 50 {
			out, err := exec.Command("find", dir, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").CombinedOutput()
			if err == nil || strings.Contains(string(out), "No such file") {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if _, err := os.Stat(dir); err == nil {
			m.t.Errorf("%s is left", dir)
		}
	}
}

func (m *machine) write(path, content string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.root+path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.root+path, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// try runs a command in the machine, as a login of root would.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 3*time.Minute)
	defer cancel()
	all := append([]string{"-t", strconv.Itoa(m.init), "-a", "--", "env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "SUDO_USER=alice"}, args...)
	out, err := exec.CommandContext(ctx, "nsenter", all...).CombinedOutput()
	return string(out), err
}

func (m *machine) must(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (m *machine) eventually(patience time.Duration, what string, ask func() error) {
	m.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if err = ask(); err == nil {
			return
		}
	}
	m.t.Fatalf("%s: not within %s: %v", what, patience, err)
}

// dial connects from the machine's own network; the connection stays in it.
func (m *machine) dial(address string) (net.Conn, error) {
	type result struct {
		net.Conn
		error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		f, err := os.Open("/run/netns/" + m.name)
		if err != nil {
			done <- result{nil, err}
			return
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{nil, err}
			return
		}
		host, port, _ := net.SplitHostPort(address)
		number, _ := strconv.Atoi(port)
		// Without net.Dialer, which would dial on threads of its own.
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			done <- result{nil, err}
			return
		}
		to := &unix.SockaddrInet4{Port: number, Addr: [4]byte(net.ParseIP(host).To4())}
		if err := unix.Connect(fd, to); err != nil {
			unix.Close(fd)
			done <- result{nil, err}
			return
		}
		file := os.NewFile(uintptr(fd), address)
		defer file.Close()
		conn, err := net.FileConn(file)
		done <- result{conn, err}
	}()
	r := <-done
	return r.Conn, r.error
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		var missing *exec.Error
		if errors.As(err, &missing) {
			t.Fatal(err)
		}
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
