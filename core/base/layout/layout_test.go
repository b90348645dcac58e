package layout

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mine is who starts in these tests.
var mine = Version{Layout: 2, Kith: "v0.12.0", Kubernetes: "1.37"}

// stored is what a folder may hold, and whether mine may start on it. refused is a part of the sentence.
var stored = []struct {
	name             string
	data, engine     string // the files version; "-" is none
	database         bool
	refused, scripts string // "" is not refused; what the package's script says, where it differs
}{
	{"nothing yet", "-", "-", false, "", ""},
	{"its own", "LAYOUT=2\nKITH=v0.12.0\n", "LAYOUT=2\nKITH=v0.12.0\nKUBERNETES=1.37\n", true, "", ""},
	{"of an older Kith", "LAYOUT=1\nKITH=v0.11.0\n", "LAYOUT=1\nKITH=v0.11.0\nKUBERNETES=1.36\n", true, "", ""},
	{"of a Kith that wrote no such file", "-", "-", true, "", ""},
	{"a newer patch of the same layout", "LAYOUT=2\nKITH=v0.13.0\nLATER=something\n", "LAYOUT=2\nKITH=v0.13.0\nKUBERNETES=1.37\n", true, "", ""},
	{"without Kubernetes", "# a note\nLAYOUT=2\n", "-", false, "", ""},
	{"a newer layout", "LAYOUT=3\nKITH=v1.0.0\n", "-", false, "written by a newer Kith, v1.0.0", ""},
	{"a newer layout of the engine", "LAYOUT=2\nKITH=v1.0.0\n", "LAYOUT=3\nKITH=v1.0.0\n", true, "written by a newer Kith, v1.0.0", ""},
	{"a newer Kubernetes", "LAYOUT=2\n", "LAYOUT=2\nKITH=v0.13.0\nKUBERNETES=1.38\n", true, "Kubernetes does not go back to an older minor version", ""},
	{"two minor versions older", "LAYOUT=1\n", "LAYOUT=1\nKITH=v0.9.0\nKUBERNETES=1.35\n", true, "install a Kith with Kubernetes 1.36 first", ""},
	{"an empty file", "", "-", false, "is damaged: it has no LAYOUT", "is damaged"},
	{"no number", "LAYOUT=two\n", "-", false, `is damaged: LAYOUT is "two"`, "is damaged"},
	{"no version of Kubernetes", "LAYOUT=2\n", "LAYOUT=2\nKUBERNETES=newest\n", true, `is damaged: "newest" is no minor version`, "is damaged"},
	{"a file without end", "LAYOUT=1\n" + strings.Repeat("#", 5000), "-", false, "is damaged: it is too long", "-"},
}

func folder(t *testing.T, data, engine string, database bool) string {
	dir := t.TempDir()
	put := func(path, text string) {
		t.Helper()
		if text == "-" {
			return
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(dir, File), data)
	put(filepath.Join(dir, Engine, File), engine)
	if database {
		put(filepath.Join(dir, Engine, "db", "state.db"), "SQLite")
	}
	return dir
}

func TestAnOlderKithDoesNotStartOnWhatANewerOneStored(t *testing.T) {
	for _, c := range stored {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, c.data, c.engine, c.database)
			err := CheckAll(dir, mine)
			if c.refused == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var refusal *Refusal
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "Nothing was changed: ") {
				t.Errorf("%v, want a refusal with %q", err, c.refused)
			}
			err = errors.Join(Start(dir, mine), Start(filepath.Join(dir, Engine), mine))
			if !errors.As(err, &refusal) {
				t.Errorf("it starts: %v", err)
			}
		})
	}
}

// The script of packages says the same, without a kithd.
func TestThePackagesScriptAgrees(t *testing.T) {
	for _, c := range stored {
		if c.scripts == "-" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			sh := exec.Command("sh", "../../../packaging/check-data.sh", mine.Kith, "2", mine.Kubernetes, folder(t, c.data, c.engine, c.database))
			out, err := sh.CombinedOutput()
			if c.refused == "" {
				if err != nil || len(out) > 0 {
					t.Errorf("%v: %s", err, out)
				}
				return
			}
			want := c.refused
			if c.scripts != "" {
				want = c.scripts
			}
			if sh.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), want) {
				t.Errorf("exit %d, %s, want %q", sh.ProcessState.ExitCode(), out, want)
			}
		})
	}
}

func TestWhoStartsIsNoted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	path := filepath.Join(dir, File)
	if err := Start(dir, Version{Layout: 1, Kith: "v0.11.0\nLAYOUT=9", Kubernetes: "1.36"}); err != nil {
		t.Fatal(err)
	}
	if v, err := read(dir); err != nil || *v != (Version{1, "v0.11.0LAYOUT=9", "1.36"}) {
		t.Errorf("%+v, %v", v, err)
	}
	if err := Start(dir, mine); err != nil {
		t.Fatal(err)
	}
	if v, err := read(dir); err != nil || *v != mine {
		t.Errorf("%+v, %v", v, err)
	}
	before, _ := os.Stat(path)
	if err := Start(dir, mine); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("it was written again, and nothing had changed")
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("%v", list)
	}
}

func TestMinorVersions(t *testing.T) {
	for version, want := range map[string]string{"v1.36.3": "1.36", "1.36": "1.36", "v1.37.0-rc.1": "1.37", "": "", "v2.0.0": "", "unknown": "", "v1.x": ""} {
		if got := Minor(version); got != want {
			t.Errorf("Minor(%q) = %q, want %q", version, got, want)
		}
	}
}
