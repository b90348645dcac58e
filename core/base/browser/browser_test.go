package browser

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

const url = "http://127.0.0.1:4711/#abc"

// programs puts scripts in the place of all programs and gives the file that they write.
func programs(t *testing.T, scripts map[string]string) (said string) {
	t.Helper()
	bin := t.TempDir()
	said = filepath.Join(bin, "said")
	t.Setenv("SAID", said)
	t.Setenv("PATH", bin)
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return said
}

func screen(name string) string {
	if name == "DISPLAY" {
		return ":0"
	}
	return ""
}

func TestAPageIsShownByWhatIsThere(t *testing.T) {
	for name, c := range map[string]struct {
		system  string
		scripts map[string]string
		want    string
	}{
		"xdg-open":      {"linux", map[string]string{"xdg-open": `echo "xdg-open $*" > $SAID`, "gio": "exit 1"}, "xdg-open " + url + "\n"},
		"no xdg-open":   {"linux", map[string]string{"gio": `echo "gio $*" > $SAID`}, "gio open " + url + "\n"},
		"one that fail": {"linux", map[string]string{"xdg-open": "exit 3", "gio": `echo "gio $*" > $SAID`}, "gio open " + url + "\n"},
		"none":          {"linux", nil, ""},
		"a Mac":         {"darwin", map[string]string{"osascript": `{ echo "osascript $*"; while read -r line || [ -n "$line" ]; do echo "$line"; done; } > $SAID`}, "osascript -\nopen location \"" + url + "\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			said := programs(t, c.scripts)
			err := open(c.system, screen, url)
			got, _ := os.ReadFile(said)
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestWithoutAScreenNothingIsStarted(t *testing.T) {
	said := programs(t, map[string]string{"xdg-open": "echo x > $SAID"})
	if err := open("linux", func(string) string { return "" }, url); !errors.Is(err, ErrNoDesktop) {
		t.Error(err)
	}
	if _, err := os.Stat(said); err == nil {
		t.Error("something was started")
	}
}
