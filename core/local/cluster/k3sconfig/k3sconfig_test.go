package k3sconfig

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLaterFilesWinAndPlusAdds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, "cluster-cidr: 10.44.0.0/16\ntls-san: [a, b]\ndisable: [traefik]\nhttps-listen-port: 6443\n")
	write(t, file+".d/20-b.yaml", "tls-san+: c\ndisable: [servicelb]\n")
	write(t, file+".d/10-a.yaml", "cluster-cidr: 10.46.0.0/16\ndisable-scheduler: true\nflannel-ipv6-masq:\n")
	write(t, file+".d/30-c.json", "cluster-cidr: 10.48.0.0/16\n") // neither .yaml nor .yml
	got, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	want := Values{
		"cluster-cidr": {"10.46.0.0/16"}, "tls-san": {"a", "b", "c"}, "disable": {"servicelb"}, "https-listen-port": {"6443"},
		"disable-scheduler": {"true"}, "flannel-ipv6-masq": {},
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got.Last("tls-san") != "c" || got.Last("token") != "" || got.Last("flannel-ipv6-masq") != "" {
		t.Errorf("last values of %v", got)
	}
}

func TestWithoutFilesNothingIsSet(t *testing.T) {
	got, err := Read(filepath.Join(t.TempDir(), "none", "config.yaml"))
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestWhatIsNoConfigurationIsSaid(t *testing.T) {
	for text, says := range map[string]string{"- a\n": "want a YAML map", "node-label: {a: b}\n": "node-label", "a: [": "config.yaml"} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		write(t, file, text)
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want it to say %q", text, err, says)
		}
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, strings.Repeat("#", maxFile+1))
	if _, err := Read(file); err == nil {
		t.Error("a huge file was read")
	}
}
