package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestDefaultsNeedOnlyAHostName(t *testing.T) {
	c := Default()
	if err := c.Complete("/usr/lib/kith/kith-k8s", "alice"); err != nil {
		t.Fatal(err)
	}
	for _, got := range [][2]string{
		{c.NodeName, "alice"}, {c.RuntimeDir, "/usr/lib/kith"}, {c.ImagesDir, "/var/lib/kith/k8s/images"},
		{c.WriteKubeconfig, "/var/lib/kith/k8s/admin.kubeconfig"}, {c.APIServiceIP().String(), "10.43.0.1"},
	} {
		if got[0] != got[1] {
			t.Errorf("got %s, want %s", got[0], got[1])
		}
	}
}

func TestWhatCannotWorkIsRefusedByItsKey(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"node-name":         func(c *Config) { c.NodeName = "Alice's laptop" },
		"data-dir":          func(c *Config) { c.DataDir = "k8s" },
		"run-dir":           func(c *Config) { c.RunDir = "/" + strings.Repeat("x", 100) },
		"cluster-cidr":      func(c *Config) { c.ClusterCIDR = netip.MustParsePrefix("10.42.0.1/16") },
		"pod-cidr":          func(c *Config) { c.PodCIDR = netip.MustParsePrefix("10.99.0.0/24") },
		"service-cidr":      func(c *Config) { c.ServiceCIDR = netip.MustParsePrefix("10.42.128.0/17") },
		"cluster-dns":       func(c *Config) { c.ClusterDNS = netip.MustParseAddr("10.42.0.10") },
		"node-ip":           func(c *Config) { c.NodeIP = netip.MustParseAddr("10.42.0.7") },
		"https-listen-port": func(c *Config) { c.Port = 0 },
		"dns-port":          func(c *Config) { c.DNSPort = 70000 },
		"pod-mtu":           func(c *Config) { c.PodMTU = 10 },
		"expose":            func(c *Config) { c.Expose = "world" },
		"log-level":         func(c *Config) { c.LogLevel = "loud" },
		"lan-ip 192.0.2.9":  func(c *Config) { c.LANIP = netip.MustParseAddr("192.0.2.9") },
		"lan-ip 10.42.9.9":  func(c *Config) { c.Agents, c.LANIP = true, netip.MustParseAddr("10.42.9.9") },
		"cluster-cidr 10.42.0.0/23: with agents": func(c *Config) {
			c.Agents, c.ClusterCIDR = true, netip.MustParsePrefix("10.42.0.0/23")
		},
		"pod-cidr 10.42.200.0/24: with agents": func(c *Config) { c.Agents, c.PodCIDR = true, netip.MustParsePrefix("10.42.200.0/24") },
	} {
		c := Default()
		change(&c)
		if err := c.Complete("/opt/kith-k8s", "alice"); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// load reads text as a config file, beside args on the command line.
func load(t *testing.T, text string, args ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Default()
	fs := pflag.NewFlagSet("server", pflag.ContinueOnError)
	c.Flags(fs)
	fs.String("config", "", "")
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &c, Load(path, fs)
}

func TestFileHasTheFlagsAsKeysAndFlagsWin(t *testing.T) {
	c, err := load(t, "node-name: bob\npod-mtu: 1400\ndeciding: false\nnode-ip: 10.42.255.9\n", "--node-name=alice")
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeName != "alice" || c.PodMTU != 1400 || c.Deciding || c.NodeIP.String() != "10.42.255.9" {
		t.Errorf("%+v", c)
	}
}

// An older kithd may come to start this engine, as after the way back from an update.
func TestAnOlderKithdIsUnderstood(t *testing.T) {
	for _, name := range []string{"brain", "control-plane"} {
		if c, err := load(t, "", "--"+name+"=false", "--guest-cidr=10.42.128.0/17"); err != nil || c.Deciding {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if c, err := load(t, name+": false\n"); err != nil || c.Deciding {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func TestFileWithAMistakeIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"nodename: bob":                   `unknown key "nodename"; known are agents, cgroup-root`,
		"config: /etc/other":              `unknown key "config"`,
		"pod-mtu: big":                    "pod-mtu",
		"node-ip: 10.42.255":              "node-ip",
		"node-name: [a, b]":               "want one value",
		"deciding: true\ndeciding: false": "already",
		"- node-name":                     "YAML map",
		"node-name:\n  nested: true":      "want one value",
	} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want it to say %q", text, err, says)
		}
	}
}
