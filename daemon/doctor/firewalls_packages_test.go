//go:build packages && linux

package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kith.dev/core/api"
)

// TestRealFirewallsAreToldByTheirOwnCommands has ufw and firewalld of Debian's packages, on a network that nobody else is on: what they block is
// found and mended by what the finding says, twice is harmless, and what the owner says is left. It is one test, as its thread has the namespaces.
func TestRealFirewallsAreToldByTheirOwnCommands(t *testing.T) {
	machineWithPackages(t, "ufw", "firewalld", "dbus-daemon")
	find := func(name string) api.Finding { return look(t, machine().network)[name] }
	want := func(f api.Finding, state api.CheckState, says string) api.Finding {
		t.Helper()
		if f.State != state || !strings.Contains(f.What+"; "+f.Why+"; "+f.Do, says) {
			t.Fatalf("%+v, not %s: %s", f, state, says)
		}
		t.Logf("%s %s: %s; %s; %s", f.State, f.Name, f.What, f.Why, f.Do)
		return f
	}
	run := func(args ...string) {
		t.Helper()
		if text, err := output(t.Context(), args...); err != nil {
			t.Fatalf("%q: %v %s", args, err, text)
		}
	}

	want(find("ufw"), api.CheckOK, "not active")
	run("ufw", "--force", "enable")
	f := want(find("ufw"), api.CheckFail, "ufw allow 6450/tcp; ufw allow 6450/udp")
	mends(t, f)
	want(find("ufw"), api.CheckOK, "lets other laptops in")
	mends(t, f)
	want(find("ufw"), api.CheckOK, "lets other laptops in")
	run("ufw", "deny", "6450/udp") // in the place of what allows it
	if f := want(find("ufw"), api.CheckFail, "a rule of ufw says so"); len(f.Fix) > 0 {
		t.Errorf("what the owner denied is to be allowed: %q", f.Fix)
	}
	run("ufw", "--force", "disable")

	want(find("firewalld"), api.CheckOK, "not running")
	starts(t, "dbus-daemon", "--system", "--nofork", "--nopidfile")
	starts(t, "firewalld", "--nofork", "--nopid")
	for deadline := time.Now().Add(time.Minute); ; {
		state, err := output(t.Context(), "firewall-cmd", "--state")
		if strings.TrimSpace(state) == "running" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("firewalld does not start: %s %v", state, err)
		}
	}
	f = want(find("firewalld"), api.CheckFail, "firewall-cmd --permanent --zone=public --add-port=6450/udp; firewall-cmd --zone=public --add-service=mdns")
	mends(t, f)
	want(find("firewalld"), api.CheckOK, "lets other laptops in")
	mends(t, f)
	run("firewall-cmd", "--reload") // what was said is kept
	want(find("firewalld"), api.CheckOK, "lets other laptops in")
	run("firewall-cmd", "--zone=public", "--add-rich-rule=rule family=ipv4 port port=6450 protocol=tcp reject")
	if f := want(find("firewalld"), api.CheckFail, "a rule of the zone public says so"); len(f.Fix) > 0 {
		t.Errorf("what the owner rejects is to be let in: %q", f.Fix)
	}
	run("firewall-cmd", "--reload")
	run("firewall-cmd", "--zone=public", "--change-interface=eth0")
	run("firewall-cmd", "--zone=drop", "--change-interface=eth0")
	if f := want(find("firewalld"), api.CheckFail, "in the zone drop, which lets nothing in"); len(f.Fix) > 0 {
		t.Errorf("%q", f.Fix)
	}
	run("firewall-cmd", "--zone=trusted", "--add-source=192.168.7.0/24")
	want(find("firewalld"), api.CheckOK, "by its zone trusted")
	run("firewall-cmd", "--zone=trusted", "--remove-source=192.168.7.0/24")
	run("firewall-cmd", "--permanent", "--new-service=own")
	run("firewall-cmd", "--permanent", "--service=own", "--add-port=6450/tcp")
	run("firewall-cmd", "--permanent", "--service=own", "--add-port=6450/udp")
	run("firewall-cmd", "--reload")
	run("firewall-cmd", "--zone=work", "--change-interface=eth0")
	want(find("firewalld"), api.CheckFail, "--zone=work --add-port=6450/tcp")
	run("firewall-cmd", "--zone=work", "--add-service=own")
	run("firewall-cmd", "--zone=work", "--add-service=mdns")
	want(find("firewalld"), api.CheckOK, "lets other laptops in")
}

// machineWithPackages is apart, with packages on a copy of this machine's files that goes with the test. Nothing of them starts by itself.
func machineWithPackages(t *testing.T, packages ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	runtime.LockOSThread() // and never unlocked: the thread goes with the test
	must(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS))
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1g,mode=755"))
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	up, work, root := filepath.Join(dir, "up"), filepath.Join(dir, "work"), filepath.Join(dir, "root")
	for _, d := range []string{up, work, root} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, unix.Mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+up+",workdir="+work))
	for _, d := range []string{"proc", "sys", "dev"} {
		must(t, unix.Mount("/"+d, filepath.Join(root, d), "", unix.MS_BIND|unix.MS_REC, ""))
	}
	for _, d := range []string{"run", "tmp"} {
		must(t, unix.Mount("tmpfs", filepath.Join(root, d), "tmpfs", 0, "mode=755"))
	}
	must(t, os.Mkdir(filepath.Join(root, "run/dbus"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "usr/sbin/policy-rc.d"), []byte("#!/bin/sh\nexit 101\n"), 0o755)) // no service starts
	install := exec.Command("chroot", append([]string{root, "apt-get", "install", "-y", "-q", "--no-install-recommends"}, packages...)...)
	install.Env = []string{"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "PATH=" + ofRoot}
	for _, name := range []string{"http_proxy", "https_proxy"} {
		if value, there := os.LookupEnv(name); there {
			install.Env = append(install.Env, name+"="+value)
		}
	}
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	apart(t)
	must(t, unix.Chroot(root))
	must(t, os.Chdir("/"))
}

// starts starts a program that ends with the test.
func starts(t *testing.T, args ...string) {
	t.Helper()
	path, err := programOf(args[0])
	must(t, err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Env = []string{"LC_ALL=C", "PATH=" + ofRoot}
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
}
