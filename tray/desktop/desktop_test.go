package desktop

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// with gives a Desktop whose PATH has the programs, shell scripts, and nothing else but a shell.
func with(t *testing.T, env map[string]string, programs map[string]string) *Desktop {
	t.Helper()
	bin := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	env["XDG_RUNTIME_DIR"] = t.TempDir()
	d := New(func(name string) string { return env[name] })
	d.system, d.reads = "linux", 50*time.Millisecond
	return d
}

// eventually waits for the text of a file that another process writes.
func eventually(t *testing.T, path, want string) {
	t.Helper()
	var got []byte
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got, _ = os.ReadFile(path); strings.TrimSpace(string(got)) == want {
			return
		}
	}
	t.Fatalf("%s has %q, want %q", path, got, want)
}

func TestCopyTakesTheClipboardOfTheSession(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	d := with(t, map[string]string{"DISPLAY": ":0"}, map[string]string{
		"wl-copy": "echo wrong > " + out, "xclip": `read x; echo "$1 $2 $x" > ` + out,
	})
	if file, err := d.Copy(t.Context(), "kubeconfig", []byte("secret\n")); file != "" || err != nil {
		t.Fatal(file, err)
	}
	eventually(t, out, "-selection clipboard secret")
}

func TestWithoutAClipboardTheFileIsForTheUserAlone(t *testing.T) {
	for name, programs := range map[string]map[string]string{"none": {}, "fails": {"xclip": "exit 1"}} {
		d := with(t, map[string]string{"DISPLAY": ":0"}, programs)
		for range 2 { // the second replaces the first
			file, err := d.Copy(t.Context(), "kubeconfig", []byte("secret"))
			if err != nil || file == "" {
				t.Fatal(name, file, err)
			}
			info, _ := os.Stat(file)
			if text, _ := os.ReadFile(file); string(text) != "secret" || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %q, mode %v", name, text, info.Mode())
			}
		}
		if left, _ := os.ReadDir(d.dir); len(left) != 1 {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

func TestTerminalTalksToTheCluster(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	d := with(t, map[string]string{"TERMINAL": "mine"}, map[string]string{
		"mine": "exit 3", "x-terminal-emulator": "while read x; do echo $x; done < $KUBECONFIG > " + out, "xterm": "echo wrong > " + out,
	})
	if err := d.Terminal([]byte("apiVersion: v1\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, out, "apiVersion: v1")
	d = with(t, map[string]string{}, nil)
	if err := d.Terminal(nil); err == nil || !strings.Contains(err.Error(), "x-terminal-emulator") {
		t.Error(err)
	}
}

func TestTextIsKeptWhereNothingShowsIt(t *testing.T) {
	d := with(t, map[string]string{}, nil)
	path, err := d.View("diagnosis.txt", []byte("all is well"))
	if err == nil || path == "" {
		t.Fatal(path, err)
	}
	eventually(t, path, "all is well")
	out := filepath.Join(t.TempDir(), "out")
	d = with(t, map[string]string{}, map[string]string{"gio": `echo "$1 $2" > ` + out})
	if path, err = d.View("diagnosis.txt", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, out, "open "+path)
}

func TestSaveIsForTheUserAloneAndWritesOverNothing(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PATH", "") // no xdg-user-dir
	d := New(os.Getenv)
	path, err := d.Save("report.tar.gz", []byte("one"))
	if err != nil || path != filepath.Join(home, "report.tar.gz") {
		t.Fatal(path, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	if _, err := d.Save("report.tar.gz", []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(home, "Downloads"), 0o755); err != nil {
		t.Fatal(err)
	}
	if path, err := d.Save("report.tar.gz", nil); err != nil || filepath.Dir(path) != filepath.Join(home, "Downloads") {
		t.Error(path, err)
	}
}
