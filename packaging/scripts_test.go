package packaging_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scripts are a package's maintainer scripts in a laptop of files: what they call is noted, and changes nothing.
type scripts struct {
	t    *testing.T
	root string
	env  []string
}

// called are the programs of others that scripts use; each notes that it was called, and does what the variable of its name says.
var called = []string{"systemctl", "deb-systemd-invoke", "deb-systemd-helper", "systemd-sysusers", "groupadd", "groupdel", "getent", "usermod", "gpasswd", "id", "teardown"}

func newScripts(t *testing.T) *scripts {
	t.Helper()
	s := &scripts{t: t, root: t.TempDir()}
	for _, name := range called {
		s.write("bin/"+name, fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >>%s/log\neval \"${DO_%s:-}\"\n", name, s.root, strings.ReplaceAll(name, "-", "_")), 0o755)
	}
	s.write("run/systemd/system/.keep", "", 0o644)
	s.write("mounts", "proc /proc proc rw 0 0\n", 0o644)
	return s
}

func (s *scripts) write(name, text string, mode os.FileMode) {
	s.t.Helper()
	path := filepath.Join(s.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scripts) there(name string) bool {
	_, err := os.Lstat(filepath.Join(s.root, name))
	return err == nil
}

// run gives what the script said and what it called.
func (s *scripts) run(script string, args ...string) (said string, log []string, err error) {
	s.t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		s.t.Fatal(err)
	}
	check, err := os.ReadFile("check-data.sh")
	if err != nil {
		s.t.Fatal(err)
	}
	// As scripts/package.sh does; and with the paths of the laptop of files.
	filled := strings.NewReplacer("@check-data@", string(check), "@version@", "1.2.0", "@layout@", "2", "@kubernetes@", "1.37", "@libexecdir@", s.root+"/bin").Replace(string(text))
	filled = strings.NewReplacer("/var/lib/kith", s.root+"/data", "/run/kith", s.root+"/run/kith", "/run/systemd", s.root+"/run/systemd", "/etc/kith", s.root+"/etc/kith",
		"/proc/mounts", s.root+"/mounts", "/var/log/kith", s.root+"/log-kith", "/etc/default", s.root+"/etc/default", "/etc/systemd", s.root+"/etc/systemd",
		"/usr/local", s.root+"/usr/local", "/usr/lib/systemd", s.root+"/lib", "/lib/systemd", s.root+"/lib").Replace(filled)
	_ = os.Remove(s.root + "/log")
	sh := exec.Command("/bin/sh", append([]string{"-c", filled, script}, args...)...)
	if strings.HasPrefix(script, "deb/") {
		sh.Args = slices.Insert(sh.Args, 1, "-e") // as its first line has it
	}
	sh.Env = append([]string{"PATH=" + s.root + "/bin:" + os.Getenv("PATH")}, s.env...)
	out, err := sh.CombinedOutput()
	b, _ := os.ReadFile(s.root + "/log")
	return string(out), strings.Split(strings.TrimSpace(string(b)), "\n"), err
}

// TestPackagesRefuseWhatIsOlder: over data that a package cannot read it is not unpacked, and it says why and what to do; a lower number
// alone is no reason.
func TestPackagesRefuseWhatIsOlder(t *testing.T) {
	for _, c := range []struct {
		name         string
		data, engine string // the files version; "" is none
		config       string
		refused      string
	}{
		{name: "nothing stored"},
		{name: "its own", data: "LAYOUT=2\nKITH=1.2.0\n", engine: "LAYOUT=2\nKITH=1.2.0\nKUBERNETES=1.37\n"},
		{name: "a newer one of the same layout and Kubernetes", data: "LAYOUT=2\nKITH=1.10.0\n", engine: "LAYOUT=2\nKITH=1.10.0\nKUBERNETES=1.37\n"},
		{name: "the minor version before", data: "LAYOUT=1\nKITH=1.1.0\n", engine: "LAYOUT=1\nKITH=1.1.0\nKUBERNETES=1.36\n"},
		{name: "a newer layout", data: "LAYOUT=3\nKITH=1.10.0\n", refused: "was written by a newer Kith, 1.10.0; 1.2.0 does not know its layout"},
		{name: "a newer Kubernetes", data: "LAYOUT=2\n", engine: "LAYOUT=2\nKITH=1.10.0\nKUBERNETES=1.38\n", refused: "Kubernetes does not go back to an older minor version"},
		{name: "two minor versions at once", data: "LAYOUT=1\n", engine: "LAYOUT=1\nKITH=0.9\nKUBERNETES=1.35\n", refused: "install a Kith with Kubernetes 1.36 first"},
		{name: "no version", data: "KITH=1.2.0\n", refused: "is damaged"},
		{name: "a version with words for the terminal", data: "LAYOUT=3\nKITH=1.10.0\x1b[2J\n", refused: "a newer Kith, 1.10.0[2J;"},
		{name: "a dataDir of its owner's", data: "LAYOUT=3\nKITH=1.10.0\n", config: "name: alice\ndataDir: \"%s\" # big disk\n", refused: "big disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for script, forms := range map[string][][]string{
				"deb/preinst.in": {{"install"}, {"install", "1.1", "1.2.0"}, {"upgrade", "1.1", "1.2.0"}, {"upgrade", "1.10", "1.2.0"}, {"abort-upgrade", "1.2.0"}},
				"rpm/pre.in":     {{"1"}, {"2"}},
			} {
				for _, args := range forms {
					s := newScripts(t)
					dir := "data"
					if c.config != "" {
						dir = "big disk/kith"
						s.write("etc/kith/config.yaml", fmt.Sprintf(c.config, s.root+"/"+dir), 0o644)
					}
					if c.data != "" {
						s.write(dir+"/version", c.data, 0o644)
					}
					if c.engine != "" {
						s.write(dir+"/k8s/version", c.engine, 0o644)
					}
					before := files(t, s.root)
					said, log, err := s.run(script, args...)
					if c.refused == "" || args[0] == "abort-upgrade" {
						if err != nil || said != "" {
							t.Errorf("%s %v: %v: %s", script, args, err, said)
						}
					} else if err == nil || !strings.Contains(said, c.refused) || !strings.Contains(said, "Nothing was changed: ") {
						t.Errorf("%s %v: %v: %s", script, args, err, said)
					}
					if after := files(t, s.root); !slices.Equal(before, after) || log[0] != "" {
						t.Errorf("%s %v changed something: %v; called %v", script, args, after, log)
					}
				}
			}
		})
	}
}

// TestEveryWayAPackagesScriptsAreCalled: all forms of Debian's policy (deb-preinst(5) and the others), and what each does.
func TestEveryWayAPackagesScriptsAreCalled(t *testing.T) {
	for _, c := range []struct {
		script string
		args   string
		env    string
		calls  []string // in this order, others in between
		never  []string
		fails  string
	}{
		{script: "preinst", args: "nonsense", fails: "unknown argument: nonsense"},

		{script: "postinst", args: "configure", env: "SUDO_USER=alice", calls: []string{"systemd-sysusers kith.conf", "usermod -a -G kith alice", "deb-systemd-helper unmask", "systemctl --system daemon-reload", "deb-systemd-invoke start"}},
		{script: "postinst", args: "configure", env: "PKEXEC_UID=1000 DO_getent='[ $2 != 1000 ] || echo bob:x:1000:'", calls: []string{"usermod -a -G kith bob"}},
		{script: "postinst", args: "configure", env: "SUDO_USER=alice DO_usermod=exit\\ 6", calls: []string{"usermod", "gpasswd -a alice kith", "deb-systemd-invoke start"}}, // of a directory
		{script: "postinst", args: "configure", env: "SUDO_USER=alice DO_usermod=exit\\ 6 DO_gpasswd=exit\\ 3", calls: []string{"deb-systemd-invoke start"}},
		{script: "postinst", args: "configure", env: "SUDO_USER=alice DO_id='echo alice kith'", never: []string{"usermod"}},
		{script: "postinst", args: "configure", env: "SUDO_USER=root", never: []string{"usermod"}},
		{script: "postinst", args: "configure 1.1.0", env: "SUDO_USER=alice", calls: []string{"deb-systemd-invoke restart"}, never: []string{"usermod"}},
		{script: "postinst", args: "abort-upgrade 1.2.0", never: []string{"deb-systemd-invoke", "usermod"}},
		{script: "postinst", args: "abort-deconfigure in-favour other 1 removing another 2", never: []string{"deb-systemd-invoke"}},
		{script: "postinst", args: "abort-remove", calls: []string{"deb-systemd-invoke start"}},
		{script: "postinst", args: "abort-remove in-favour other 1", calls: []string{"deb-systemd-invoke start"}},
		{script: "postinst", args: "nonsense", fails: "unknown argument: nonsense"},

		{script: "prerm", args: "remove", calls: []string{"teardown goodbye", "deb-systemd-invoke stop kithd.service", "teardown"}},
		{script: "prerm", args: "remove in-favour other 1", calls: []string{"teardown goodbye", "deb-systemd-invoke stop kithd.service", "teardown"}},
		{script: "prerm", args: "remove", env: "DO_teardown='[ \"$1\" != goodbye ]'", calls: []string{"teardown goodbye", "teardown"}},
		{script: "prerm", args: "remove", env: "DO_teardown='echo kithd runs; exit 1'", calls: []string{"teardown"}, fails: "kithd runs"},
		{script: "prerm", args: "upgrade 1.3.0", never: []string{"teardown", "deb-systemd-invoke"}},
		{script: "prerm", args: "deconfigure in-favour other 1 removing another 2", never: []string{"teardown", "deb-systemd-invoke"}},
		{script: "prerm", args: "failed-upgrade 1.1.0 1.2.0", never: []string{"teardown", "deb-systemd-invoke"}},
		{script: "prerm", args: "nonsense", fails: "unknown argument: nonsense"},

		{script: "postrm", args: "remove", calls: []string{"systemctl --system daemon-reload", "deb-systemd-helper mask kithd.service"}, never: []string{"deb-systemd-helper purge"}},
		{script: "postrm", args: "purge", calls: []string{"deb-systemd-helper purge kithd.service", "groupdel kith"}},
		{script: "postrm", args: "purge", env: "DO_groupdel=exit\\ 8", calls: []string{"groupdel kith"}}, // somebody's first group
		{script: "postrm", args: "purge", env: "DO_getent=exit\\ 2", never: []string{"groupdel"}},        // never configured
		{script: "postrm", args: "upgrade 1.3.0", never: []string{"deb-systemd-helper", "groupdel"}},
		{script: "postrm", args: "failed-upgrade 1.1.0 1.2.0", never: []string{"deb-systemd-helper", "groupdel"}},
		{script: "postrm", args: "abort-install", never: []string{"deb-systemd-helper", "groupdel"}},
		{script: "postrm", args: "abort-install 1.1.0 1.2.0", never: []string{"deb-systemd-helper", "groupdel"}},
		{script: "postrm", args: "abort-upgrade 1.1.0 1.2.0", never: []string{"deb-systemd-helper", "groupdel"}},
		{script: "postrm", args: "disappear other 1", never: []string{"deb-systemd-helper", "groupdel"}},
		{script: "postrm", args: "nonsense", fails: "unknown argument: nonsense"},
	} {
		t.Run(c.script+" "+c.args+" "+c.env, func(t *testing.T) {
			s := newScripts(t)
			s.write("data/identity/identity.key", "key", 0o600)
			s.write("run/kith/k8s/some", "", 0o600)
			env, err := exec.Command("sh", "-c", "env -i "+c.env+" env").Output()
			if err != nil {
				t.Fatal(err)
			}
			s.env = strings.Split(strings.TrimSpace(string(env)), "\n")
			said, log, err := s.run("deb/"+c.script+".in", strings.Fields(c.args)...)
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(said, c.fails)) {
				t.Errorf("%v: %s", err, said)
			}
			rest := log
			for _, call := range c.calls {
				i := slices.IndexFunc(rest, func(line string) bool { return strings.HasPrefix(line, call) })
				if i < 0 {
					t.Errorf("%q was not called, or not in this place: %q", call, log)
					break
				}
				rest = rest[i+1:]
			}
			for _, call := range c.never {
				if slices.ContainsFunc(log, func(line string) bool { return strings.HasPrefix(line, call) }) {
					t.Errorf("%q was called: %q", call, log)
				}
			}
			if purged := c.args == "purge"; s.there("data") == purged || s.there("run/kith") == purged {
				t.Errorf("data are there: %v, run files: %v", s.there("data"), s.there("run/kith"))
			}
		})
	}
}

// TestPurgeDeletesNothingThatIsMounted: files of others, in a volume of a pod that did not end, are others' files.
func TestPurgeDeletesNothingThatIsMounted(t *testing.T) {
	t.Run("below", func(t *testing.T) {
		s := newScripts(t)
		s.write("data/k8s/kubelet/volume/precious", "", 0o600)
		s.write("mounts", "proc /proc proc rw 0 0\n/dev/sda1 "+s.root+"/data/k8s/kubelet/volume ext4 rw 0 0\n", 0o644)
		said, _, err := s.run("deb/postrm.in", "purge")
		if err == nil || !strings.Contains(said, s.root+"/data/k8s/kubelet/volume") || !strings.Contains(said, "apt purge kith") {
			t.Errorf("%v: %s", err, said)
		}
		if !s.there("data/k8s/kubelet/volume/precious") {
			t.Error("it was deleted")
		}
		s.write("mounts", "", 0o644)
		if said, _, err := s.run("deb/postrm.in", "purge"); err != nil || s.there("data") {
			t.Errorf("afterwards: %v: %s", err, said)
		}
	})
	t.Run("a disk of its own", func(t *testing.T) {
		s := newScripts(t)
		s.write("data/k8s/some", "", 0o600)
		s.write("data/k8s/storage/pvc-1_shop-abc_data.img", "", 0o600)
		s.write("data/k8s/snapshots/snapcontent-1/data/word", "", 0o600)
		s.write("mounts", "/dev/sdb1 "+s.root+"/data ext4 rw 0 0\n/dev/sdc1 "+s.root+"/data-of-another/x ext4 rw 0 0\n", 0o644)
		if said, _, err := s.run("deb/postrm.in", "purge"); err != nil || s.there("data/k8s") || !strings.Contains(said, "deleting the volume pvc-1_shop-abc_data.img") || !strings.Contains(said, "deleting the snapshot snapcontent-1\n") {
			t.Errorf("%v: %s", err, said)
		}
	})
	t.Run("a link", func(t *testing.T) {
		s := newScripts(t)
		s.write("elsewhere/precious", "", 0o600)
		if err := os.Symlink(s.root+"/elsewhere", s.root+"/data"); err != nil {
			t.Fatal(err)
		}
		said, _, err := s.run("deb/postrm.in", "purge")
		if err != nil || !strings.Contains(said, "/elsewhere, which stays") || s.there("data") || !s.there("elsewhere/precious") {
			t.Errorf("%v: %s", err, said)
		}
	})
}

// TestAnRPMSaysGoodbyeWhenItGoes, and not when it is upgraded.
func TestAnRPMSaysGoodbyeWhenItGoes(t *testing.T) {
	for left, want := range map[string]string{"0": "teardown goodbye; systemctl --no-reload disable --now kithd.service; teardown ", "1": ""} {
		if said, log, err := newScripts(t).run("rpm/preun.in", left); err != nil || strings.Join(log, "; ") != strings.TrimSpace(want) {
			t.Errorf("preun %s: %v: %s: called %q", left, err, said, log)
		}
	}
	s := newScripts(t)
	s.env = []string{"DO_teardown=exit 1"}
	if said, _, err := s.run("rpm/preun.in", "0"); err == nil {
		t.Errorf("kithd runs on, and preun says: %s", said)
	}
	for _, script := range []string{"rpm/post.in", "rpm/postun.in"} {
		for _, arg := range []string{"0", "1", "2"} {
			if said, _, err := newScripts(t).run(script, arg); err != nil {
				t.Errorf("%s %s: %v: %s", script, arg, err, said)
			}
		}
	}
}
