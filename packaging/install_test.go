// Package packaging_test installs a tree made of stand-ins for the built programs, and looks at what is where.
package packaging_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// programs are what scripts/build.sh writes into bin/ for a laptop; kith-lab is for developers.
var programs = []string{
	"kith", "kith-tray", "kithd", "kith-k8s", "kith-image", "containerd", "containerd-shim-runc-v2", "ctr", "runc",
	"cni/bridge", "cni/loopback", "cni/ptp", "cni/host-local", "cni/portmap", "cni/kith-mark", "images/pause.tar",
}

// source is a copy of the source tree with all that make build would have added.
func source(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, read := range []string{"files", "kithd.service.in", "teardown.in", "../scripts/install.sh"} { // so that go test knows that a result depends on them
		if _, err := os.ReadFile(read); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"assets", "docs", "examples", "packaging", "scripts", "README.md", "LICENSE"} {
		from, err := filepath.Abs(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range programs {
		put(t, root, "bin/"+name)
	}
	for _, name := range []string{
		"man/kith.1", "man/kith-peer.1", "man/kith-tray.1", "man/kith.yaml.5", "man/kithd.8",
		"completions/kith.bash", "completions/_kith", "completions/kith.fish", "config.yaml",
	} {
		put(t, root, "build/"+name)
	}
	return root
}

func put(t *testing.T, root, name string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, root, what string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "scripts/install.sh"), what)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func must(t *testing.T, root, what string, env ...string) {
	t.Helper()
	if out, err := run(t, root, what, env...); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, out)
	}
}

// files are the paths below dir that are no directories.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestEachPartIsWhereItIsLookedFor(t *testing.T) {
	for _, prefix := range []string{"/usr/local", "/usr", "/opt/kith"} {
		t.Run(prefix, func(t *testing.T) {
			root, dest := source(t), t.TempDir()
			must(t, root, "install", "DESTDIR="+dest, "PREFIX="+prefix)
			is := func(path, content string) {
				t.Helper()
				b, err := os.ReadFile(dest + path)
				if err != nil || content != "" && string(b) != content {
					t.Errorf("%s: %q, %v", path, b, err)
				}
			}
			is(prefix+"/bin/kith", "bin/kith")
			is(prefix+"/bin/kith-tray", "bin/kith-tray")
			is(prefix+"/bin/kith-k8s", "bin/kith-k8s")
			is(prefix+"/share/man/man1/kith-peer.1", "build/man/kith-peer.1")
			is(prefix+"/share/man/man5/kith.yaml.5", "build/man/kith.yaml.5")
			is(prefix+"/share/man/man8/kithd.8", "build/man/kithd.8")
			is(prefix+"/share/bash-completion/completions/kith", "build/completions/kith.bash")
			is(prefix+"/share/zsh/site-functions/_kith", "build/completions/_kith")
			is(prefix+"/share/fish/vendor_completions.d/kith.fish", "build/completions/kith.fish")
			is(prefix+"/share/icons/hicolor/scalable/apps/kith.svg", "")
			is(prefix+"/lib/sysusers.d/kith.conf", "")
			is(prefix+"/lib/sysctl.d/50-kith.conf", "")
			is(prefix+"/lib/modules-load.d/kith.conf", "")
			is(prefix+"/share/metainfo/dev.kith.kith.metainfo.xml", "")
			is("/etc/xdg/autostart/kith-tray.desktop", "")

			// kithd looks for its parts beside itself, after links are followed (os.Executable), and they for each other.
			kithd, err := filepath.EvalSymlinks(dest + unit(t, dest+prefix+"/lib/systemd/system/kithd.service")["ExecStart"][0])
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range programs {
				if name == "kith" || name == "kith-tray" {
					continue
				}
				path := filepath.Join(filepath.Dir(kithd), name)
				info, err := os.Stat(path)
				if err != nil {
					t.Error(err)
				} else if want := fs.FileMode(0o755); !strings.HasSuffix(name, ".tar") && info.Mode() != want {
					t.Errorf("%s: %v, want %v", path, info.Mode(), want)
				}
			}
			for _, path := range files(t, dest) {
				if !strings.HasPrefix(path, prefix+"/") && !strings.HasPrefix(path, "/etc/") {
					t.Errorf("%s is not below %s", path, prefix)
				}
				if to, err := os.Readlink(dest + path); err == nil && filepath.IsAbs(to) {
					t.Errorf("%s leads to %s: out of a tree that is packed", path, to)
				}
				if b, _ := os.ReadFile(dest + path); strings.HasSuffix(path, ".service") && strings.Contains(string(b), "@") {
					t.Errorf("%s has names that were not filled in:\n%s", path, b)
				}
			}
		})
	}
}

func TestProgramsMayBeBuiltAnywhere(t *testing.T) {
	root, dest := source(t), filepath.Join(t.TempDir(), "a tree")
	if err := os.Rename(filepath.Join(root, "bin"), filepath.Join(root, "what was  built")); err != nil {
		t.Fatal(err)
	}
	must(t, root, "install", "DESTDIR="+dest, "KITH_BIN="+filepath.Join(root, "what was  built"))
	for _, name := range []string{"bin/kith", "libexec/kith/cni/portmap", "libexec/kith/images/pause.tar"} {
		if _, err := os.Stat(filepath.Join(dest, "usr/local", name)); err != nil {
			t.Error(err)
		}
	}
}

func TestUninstallLeavesNothing(t *testing.T) {
	root, dest := source(t), t.TempDir()
	put(t, dest, "usr/local/share/man/man1/other.1")
	must(t, root, "install", "DESTDIR="+dest)
	if len(files(t, dest)) < 30 {
		t.Fatal(files(t, dest))
	}
	// It needs no build any more, and what was made since is no part of it.
	if err := os.RemoveAll(filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	put(t, dest, "usr/local/libexec/kith/mine")
	must(t, root, "uninstall", "DESTDIR="+dest)
	if left, want := files(t, dest), []string{"/usr/local/libexec/kith/mine", "/usr/local/share/man/man1/other.1"}; !slices.Equal(left, want) {
		t.Errorf("left: %v", left)
	}
	for _, dir := range []string{"usr/local/share/zsh", "usr/local/share/doc", "usr/local/libexec/kith/cni"} {
		if _, err := os.Stat(filepath.Join(dest, dir)); err == nil {
			t.Errorf("%s is left, empty", dir)
		}
	}
	if out, err := run(t, root, "uninstall", "DESTDIR="+dest); err == nil || !strings.Contains(out, "nothing is installed") {
		t.Errorf("a second time: %v: %s", err, out)
	}
}

func TestAnUpgradeTakesAwayWhatIsNoPartAnyMore(t *testing.T) {
	root, dest := source(t), t.TempDir()
	put(t, root, "bin/cni/old")
	must(t, root, "install", "DESTDIR="+dest)
	old := filepath.Join(dest, "usr/local/libexec/kith/cni/old")
	if _, err := os.Stat(old); err != nil {
		t.Fatal(err)
	}
	running, err := os.Open(filepath.Join(dest, "usr/local/libexec/kith/kithd"))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	if err := os.Remove(filepath.Join(root, "bin/cni/old")); err != nil {
		t.Fatal(err)
	}
	must(t, root, "install", "DESTDIR="+dest)
	if _, err := os.Stat(old); err == nil {
		t.Error("cni/old is still there")
	}
	// A program that runs cannot be written to (ETXTBSY): it must be another file.
	was, err := running.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(running.Name()); err != nil || os.SameFile(was, is) {
		t.Errorf("kithd was written over in its place: %v", err)
	}
}

func TestInstallRefusesWhatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(root string) error
		env   []string
		says  string
	}{
		"not built": {func(root string) error { return os.Remove(filepath.Join(root, "bin/runc")) }, nil, "not built yet: bin/runc; run make build first"},
		"no pages":  {func(root string) error { return os.RemoveAll(filepath.Join(root, "build")) }, nil, "build/man/*.1"},
		"relative":  {nil, []string{"PREFIX=usr"}, "PREFIX is usr: it must be an absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			root, dest := source(t), t.TempDir()
			if c.spoil != nil {
				if err := c.spoil(root); err != nil {
					t.Fatal(err)
				}
			}
			out, err := run(t, root, "install", append(c.env, "DESTDIR="+dest)...)
			if err == nil || !strings.Contains(out, c.says) {
				t.Errorf("%v: %s", err, out)
			}
			if all := files(t, dest); len(all) > 0 {
				t.Errorf("it installed %v", all)
			}
		})
	}
}

// unit reads a unit file: the values of each key.
func unit(t *testing.T, path string) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			keys[key] = append(keys[key], value)
		}
	}
	return keys
}

// TestTheUnitLeavesPodsAlone: what would end pods with kithd, take their sockets and pid files away, or be inherited by
// them, is not in the unit.
func TestTheUnitLeavesPodsAlone(t *testing.T) {
	keys := unit(t, "kithd.service.in")
	for key, want := range map[string]string{"KillMode": "process", "Delegate": "yes", "OOMPolicy": "continue", "Type": "notify", "WatchdogSec": "180", "Restart": "always", "RestartPreventExitStatus": "78"} {
		if !slices.Equal(keys[key], []string{want}) {
			t.Errorf("%s=%v, want %s", key, keys[key], want)
		}
	}
	for _, key := range []string{
		"RuntimeDirectory", // removed when the unit stops, and in it is what the next kithd finds the engine by
		"PrivateTmp", "PrivateDevices", "PrivateMounts", "PrivateNetwork", "PrivateUsers", "PrivateIPC", "MountFlags", "RootDirectory",
		"ProtectSystem", "ProtectHome", "ProtectProc", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups",
		"ProtectClock", "ProtectHostname", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "TemporaryFileSystem", "BindPaths",
		"NoNewPrivileges", "SystemCallFilter", "SystemCallArchitectures", "RestrictNamespaces", "RestrictAddressFamilies", "RestrictRealtime",
		"RestrictSUIDSGID", "LockPersonality", "MemoryDenyWriteExecute", "CapabilityBoundingSet", "User", "DynamicUser", "MemoryMax", "TimeoutSec",
	} {
		if keys[key] != nil {
			t.Errorf("%s=%v", key, keys[key])
		}
	}
}

// TestSystemdUnderstandsTheUnit asks systemd itself, where it is installed.
func TestSystemdUnderstandsTheUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not installed here: not asked")
		return
	}
	root, dest := source(t), t.TempDir()
	must(t, root, "install", "DESTDIR="+dest, "PREFIX=/usr")
	for _, target := range []string{"sysinit", "basic", "shutdown", "multi-user", "network", "nss-user-lookup"} {
		path := dest + "/usr/lib/systemd/system/" + target + ".target"
		if err := os.WriteFile(path, []byte("[Unit]\nDescription="+target+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("systemd-analyze", "verify", "--root="+dest, "--man=no", "kithd.service").CombinedOutput()
	var about []string
	for line := range strings.Lines(string(out)) {
		newer := strings.Contains(line, "RestartSteps") || strings.Contains(line, "RestartMaxDelaySec") // than systemd 253: it says so and goes on
		if strings.Contains(line, "kithd") && !newer {
			about = append(about, line)
		}
	}
	if err != nil || len(about) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
