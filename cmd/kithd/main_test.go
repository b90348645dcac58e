package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What kith and its tray ask when kithd does not run: 78 is a configuration that is not understood, which is not that it cannot be read.
func TestWhetherTheConfigurationIsUnderstood(t *testing.T) {
	dir := t.TempDir()
	kithd := filepath.Join(dir, "kithd")
	if out, err := exec.Command("go", "build", "-o", kithd, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		file, text, says string
		exit             int
	}{
		{"good", "name: alice\n", "", 0},
		{"key", "nme: alice\n", "there is no key nme: did you mean name? (kith.yaml(5) has them all)", 78},
		{"value", "share: 500%\n", "share", 78},
		{"form", "name: [\n", "", 78},
	} {
		path := filepath.Join(dir, c.file)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		run := exec.Command(kithd, "check-config", "--config", path)
		out, _ := run.CombinedOutput()
		if got := run.ProcessState.ExitCode(); got != c.exit || !strings.Contains(string(out), c.says) || (c.exit == 0) != (len(out) == 0) {
			t.Errorf("%s: exit %d, %s", c.file, got, out)
		}
	}
	if os.Getuid() == 0 {
		return // who may read all
	}
	path := filepath.Join(dir, "key")
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(kithd, "check-config", "--config", path)
	if out, _ := run.CombinedOutput(); run.ProcessState.ExitCode() != 1 {
		t.Errorf("one that cannot be read: %s", out)
	}
}

// What packages and systemd are told: 0 and 1 of check-data, 78 of a start that would be refused again.
func TestWhatANewerKithStoredIsRefusedBeforeAnythingChanges(t *testing.T) {
	kithd := filepath.Join(t.TempDir(), "kithd")
	if out, err := exec.Command("go", "build", "-ldflags", "-X kith.dev/core/base/version.Version=v0.12.0 -X kith.dev/core/base/version.Kubernetes=v1.36.3", "-o", kithd, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct {
		name, version, engine, says string
		check, start                int
	}{
		{"of its own", "LAYOUT=1\n", "LAYOUT=1\nKUBERNETES=1.36\n", "", 0, -1},
		{"of a newer layout", "LAYOUT=2\nKITH=v0.13.0\n", "", "install Kith v0.13.0 or a newer one again", 1, 78},
		{"of a newer Kubernetes", "LAYOUT=1\n", "LAYOUT=1\nKUBERNETES=1.37\n", "Kubernetes does not go back to an older minor version", 1, 78},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"version": c.version, "k8s/version": c.engine} {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if text != "" {
					if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, args := range [][]string{{"check-data", dir}, {"--data-dir=" + dir, "--run-dir=" + filepath.Join(dir, "run"), "--socket-group="}} {
				want := c.check
				if args[0] != "check-data" {
					want = c.start
				}
				if want < 0 {
					continue
				}
				run := exec.Command(kithd, args...)
				out, _ := run.CombinedOutput()
				if got := run.ProcessState.ExitCode(); got != want || !strings.Contains(string(out), c.says) {
					t.Errorf("kithd %s: exit %d, %s; want %d, %q", args, got, out, want, c.says)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "run")); err == nil {
				t.Error("a refused start made its folders")
			}
		})
	}
}
