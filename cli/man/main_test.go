package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kith.dev/daemon/config"
)

func TestPagesSayWhatTheProgramsSay(t *testing.T) {
	dir := t.TempDir()
	fresh, example := filepath.Join(dir, "cli.md"), filepath.Join(dir, "config.yaml")
	if err := write(dir, fresh, example); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if read(fresh) != read("../../docs/cli.md") {
		t.Error("docs/cli.md is old: run scripts/docs.sh")
	}
	if read(example) != config.Example() {
		t.Error("the example configuration is another")
	}
	for page, says := range map[string][]string{
		"kith.1":        {"EXIT STATUS", "not permitted", `kith-peer`},
		"kith-peer.1":   {"six-digit code", `timeout`},
		"kith-tray.1":   {"KITH_SOCKET", "StatusNotifier", "once"},
		"kithd.8":       {`peer-api-port`, "kith.yaml(5)"},
		"kith.yaml.5":   {"discovery.dnsDomains", "1 to 65535", "10.42.0.0/16"},
		"kith-unpeer.1": {`yes`},
		"kith-k8s.1":    {"kith-k8s kubectl", "KUBECONFIG"},
	} {
		text := strings.ReplaceAll(read(filepath.Join(dir, page)), `\-`, "-")
		for _, s := range says {
			if !strings.Contains(text, s) {
				t.Errorf("%s does not say %q", page, s)
			}
		}
	}
}
