package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"kith.dev/core/api"
	"kith.dev/core/base/places"
)

// from loads a file with content and flags, on a host called Alice_Laptop.example.org.
func from(t *testing.T, content string, args ...string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("kithd", pflag.ContinueOnError)
	f := AddFlags(set)
	if err := set.Parse(args); err != nil {
		return Config{}, err
	}
	return load(file, f.apply, func() (string, error) { return "Alice_Laptop.example.org", nil })
}

var comparable = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

func complete() Config {
	c := Default()
	c.Name, c.WireGuardPort, c.Socket = "alice-laptop", 6450, "/run/kith/kith.sock"
	return c
}

func TestFlagsOverFileOverDefaults(t *testing.T) {
	c, err := from(t, `
name: bob
peerAPIPort: 7000
runDir: /run/other
discovery:
  lan: false
  dnsDomains: [kith.example.org, example.com]
aliasPools: [10.128.0.0/9]
requestTimeout: 90s
logLevel: debug
`, "--peer-api-port=7001", "--discovery.lan", "--discovery.interfaces=eth0,wl*", "--discovery.interfaces", "en0",
		"--engine-flags=--feature-gates=A=true,B=false", "--listen-address=::1", "--share=")
	if err != nil {
		t.Fatal(err)
	}
	want := complete()
	want.Name, want.PeerAPIPort, want.WireGuardPort = "bob", 7001, 7001
	want.RunDir, want.Socket = "/run/other", "/run/other/kith.sock"
	want.Discovery = Discovery{LAN: true, DNSDomains: []string{"kith.example.org", "example.com"}, Interfaces: []string{"eth0", "wl*", "en0"}}
	want.AliasPools = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}
	want.EngineFlags = []string{"--feature-gates=A=true,B=false"}
	want.ListenAddress = netip.MustParseAddr("::1")
	want.RequestTimeout, want.LogLevel, want.Share = 90*time.Second, -4, ""
	if d := cmp.Diff(want, c, comparable); d != "" {
		t.Error(d)
	}
}

func TestEmptyFilesAndTheExampleAreTheDefaults(t *testing.T) {
	uncommented := regexp.MustCompile(`(?m)^#((?:  )?[a-zA-Z]+:)`).ReplaceAllString(Example(), "$1")
	uncommented = regexp.MustCompile(`(?m)^ *[a-zA-Z]+: # .*\n`).ReplaceAllString(uncommented, "") // follows from others
	if strings.Count(uncommented, "peerAPIPort: 6450\n") != 1 || !strings.Contains(uncommented, "\ndiscovery:\n") {
		t.Fatalf("not uncommented:\n%s", uncommented)
	}
	for name, content := range map[string]string{
		"empty": "", "comments": "# nothing\n", "a document mark": "---\n", "empty section": "discovery:\n",
		"the example": Example(), "the example without #": uncommented,
	} {
		c, err := from(t, content)
		want := complete()
		want.PodRangeSet = content == uncommented // that it was said is noted
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if d := cmp.Diff(want, c, comparable); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

func TestMistakesNameKeyValueAndWhatIsAllowed(t *testing.T) {
	for _, tc := range []struct {
		content, flag string
		field         string
		says          []string
	}{
		{content: "peerApiPort: 1", field: "peerApiPort", says: []string{"did you mean peerAPIPort?", "config.yaml"}},
		{content: "discovery: {wan: true}", field: "discovery.wan", says: []string{"there is no key discovery.wan", "did you mean discovery.lan?"}},
		{content: "colour: red", field: "colour", says: []string{"there is no key colour"}},
		{content: "peerAPIPort: 0", field: "peerAPIPort", says: []string{`"0"`, "1 to 65535"}},
		{content: "peerAPIPort: 70000", field: "peerAPIPort", says: []string{`"70000"`}},
		{content: "peerAPIPort: '6450'", field: "peerAPIPort"},
		{content: "peerAPIPort:", field: "peerAPIPort"},
		{content: "frontDoorPort: 65536", field: "frontDoorPort", says: []string{`"65536"`, "0 for none"}},
		{content: "frontDoorPort: off", field: "frontDoorPort", says: []string{"0 for none"}},
		{content: "frontDoorPort: 6450", field: "frontDoorPort", says: []string{"another than peerAPIPort"}},
		{content: "share: 50", field: "share", says: []string{`"50"`, "0% to 100%"}},
		{content: "share: 101%", field: "share"},
		{content: "autoAccept: yes please", field: "autoAccept", says: []string{"true or false"}},
		{content: "autoAccept: 'true'", field: "autoAccept"},
		{content: "name: Bob", field: "name", says: []string{`"Bob"`, "DNS label"}},
		{content: "name: [bob]", field: "name"},
		{content: "engine: k9s", field: "engine", says: []string{"auto, builtin, k3s, kubeconfig or none"}},
		{content: "expose: world", field: "expose", says: []string{`"world"`, "none or lan"}},
		{content: "expose: lan\nengine: kubeconfig", field: "expose", says: []string{"left out with engine kubeconfig"}},
		{content: "podRange: 10.42.0.1/16", field: "podRange", says: []string{"no bit set behind its length"}},
		{content: "podRange: fd00::/16", field: "podRange"},
		{content: "podRange: 10.42.0.0/22", field: "podRange", says: []string{"/20 or larger"}},
		{content: "podRange: 10.0.0.0/11\nserviceRange: 172.16.0.0/16", field: "podRange", says: []string{"/12 or smaller"}},
		{content: "serviceRange: 10.42.128.0/17", field: "serviceRange", says: []string{"outside podRange, which is 10.42.0.0/16"}},
		{content: "aliasPools: [10.42.0.0/16]", field: "aliasPools"},
		{content: "aliasPools: 10.64.0.0/10", field: "aliasPools", says: []string{"ranges"}},
		{content: "aliasPools: [10.64.0.0/10, 7]", field: "aliasPools", says: []string{`"7"`}},
		{content: "discovery: on the lan", field: "discovery", says: []string{"key: value"}},
		{content: "discovery: {dnsDomains: [-x.org]}", field: "discovery.dnsDomains"},
		{content: "dataDir: data", field: "dataDir", says: []string{"absolute path"}},
		{content: "socket: /" + strings.Repeat("x", 107), field: "socket", says: []string{"107"}},
		{content: "requestTimeout: 10", field: "requestTimeout", says: []string{"90s or 10m"}},
		{content: "requestTimeout: 0s", field: "requestTimeout"},
		{content: "autoUntetherAfter: 9s", field: "autoUntetherAfter", says: []string{`"9s"`, "10s to 720h", "or 0"}},
		{content: "autoUntetherAfter: 721h", field: "autoUntetherAfter"},
		{content: "autoUntetherAfter: -1h", field: "autoUntetherAfter"},
		{content: "autoUntetherAfter: 30", field: "autoUntetherAfter", says: []string{"30m or 24h"}},
		{content: "autoUntetherAfter: never", field: "autoUntetherAfter"},
		{content: "logLevel: verbose", field: "logLevel"},
		{content: "engine: builtin\nkubeconfig: /k", field: "kubeconfig", says: []string{"unless engine is kubeconfig"}},
		{content: "engine: builtin\nkubeletAddress: 192.0.2.1", field: "kubeletAddress", says: []string{"unless engine is kubeconfig or k3s"}},
		{content: "engine: kubeconfig\nk3sBinary: /k", field: "k3sBinary", says: []string{"unless engine is k3s"}},
		{content: "engine: builtin\nlease: kith-system/kith", field: "lease", says: []string{"unless engine is kubeconfig"}},
		{content: "engine: kubeconfig\nkubeconfig: /k\nlease: kith-system/kith", field: "identitySecret", says: []string{"who the other was"}},
		{content: "engine: kubeconfig\nkubeconfig: /k\nlease: kith", field: "lease", says: []string{"NAMESPACE/NAME"}},
		{content: "engine: kubeconfig\nkubeconfig: /k\npodName: kith-0", field: "podName", says: []string{"unless lease is set"}},
		{content: "healthAddress: localhost", field: "healthAddress"},
		{content: "metricsAddress: 0.0.0.0:9100", field: "metricsAddress", says: []string{"loopback", "metricsPublic"}},
		{content: "metricsAddress: localhost", field: "metricsAddress"},
		{content: "name: a\nname: b", says: []string{"already"}},
		{content: "name: a\n---\nshare: 10%\n", says: []string{"more than one YAML document"}},
		{content: "- name", says: []string{"keys are expected"}},
		{content: "name: [", says: []string{"yaml"}},
		{content: strings.Repeat("#", maxFile+1), says: []string{"larger than"}},
		{flag: "--peer-api-port=none", says: []string{"peerAPIPort", "1 to 65535", "--peer-api-port"}},
		{flag: "--discovery.lan=maybe", says: []string{"true or false"}},
		{flag: "--colour=red", says: []string{"unknown flag"}},
		{content: "peerAPIPort: nonsense", flag: "--peer-api-port=1", field: "peerAPIPort"}, // a wrong file is wrong all the same
	} {
		var args []string
		if tc.flag != "" {
			args = []string{tc.flag}
		}
		_, err := from(t, tc.content, args...)
		if err == nil {
			t.Errorf("%.60q %s: no error", tc.content, tc.flag)
			continue
		}
		var e *api.Error
		if tc.field != "" && (!errors.As(err, &e) || e.Field != tc.field || e.Code != api.CodeInvalid) {
			t.Errorf("%.60q %s: %v, want it on field %s", tc.content, tc.flag, err, tc.field)
		}
		for _, s := range tc.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%.60q %s: %q does not say %q", tc.content, tc.flag, err, s)
			}
		}
	}
}

func TestKubeconfigEngineAndPublicMetricsCanBeAsked(t *testing.T) {
	c, err := from(t, "engine: kubeconfig\nkubeconfig: /k\nkubeconfigContext: c\nnodeName: n.example.org\nmetricsAddress: 0.0.0.0:9100\nmetricsPublic: true\n")
	if err != nil || c.NodeName != "n.example.org" {
		t.Errorf("%+v %v", c, err)
	}
}

func TestTheFrontDoorCanBeSwitchedOff(t *testing.T) {
	c, err := from(t, "frontDoorPort: 0\n")
	if err != nil || c.FrontDoorPort != 0 {
		t.Errorf("%d %v", c.FrontDoorPort, err)
	}
}

func TestALaptopTakesBackControlByItselfOnlyIfTold(t *testing.T) {
	for content, want := range map[string]time.Duration{
		"": 0, "autoUntetherAfter: 0": 0, `autoUntetherAfter: "0"`: 0, "autoUntetherAfter: 0s": 0,
		"autoUntetherAfter: 30s": 30 * time.Second, "autoUntetherAfter: 10s": 10 * time.Second, "autoUntetherAfter: 720h": 720 * time.Hour,
	} {
		if c, err := from(t, content); err != nil || c.AutoUntetherAfter != want {
			t.Errorf("%q: %s %v, want %s", content, c.AutoUntetherAfter, err, want)
		}
	}
}

func TestDurationsAreWrittenAsPeopleDo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 10 * time.Minute: "10m", 90 * time.Second: "1m30s", 10 * time.Second: "10s", time.Hour: "1h", 90 * time.Minute: "1h30m", 720 * time.Hour: "720h",
	} {
		if got := shortly(d); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOnAMacKithdIsTheUsersProgramAtAClusterThatIsThere(t *testing.T) {
	at := places.Of("darwin", "/Users/alice")
	hostname := func() (string, error) { return "Alices-MacBook-Pro.local", nil }
	c := defaults(at)
	if err := c.complete(at, hostname); err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	if c.Engine != EngineKubeconfig || c.Kubeconfig != "/Users/alice/.kube/config" || c.SocketGroup != "" || c.Name != "alices-macbook-pro" {
		t.Errorf("%+v", c)
	}
	if c.Socket != at.Socket || c.DataDir != at.Data || c.RunDir != at.Run {
		t.Errorf("socket %s, data %s, run %s", c.Socket, c.DataDir, c.RunDir)
	}
	for what, change := range map[string]func(*Config){"another file": func(c *Config) { c.Kubeconfig = "/k" }, "no cluster": func(c *Config) { c.Engine = EngineNone }} {
		c := defaults(at)
		change(&c)
		want := c.Kubeconfig
		if err := c.complete(at, hostname); err != nil || c.check() != nil || c.Kubeconfig != want {
			t.Errorf("%s: kubeconfig %q, %v, %v", what, c.Kubeconfig, err, c.check())
		}
	}
	linux := places.Of("linux", "/root")
	c = defaults(linux)
	c.Engine = EngineKubeconfig // as a pod
	if err := c.complete(linux, hostname); err != nil || c.Kubeconfig != "" {
		t.Errorf("%q %v", c.Kubeconfig, err)
	}
}

func TestMissingFileIsAnErrorWhenNamed(t *testing.T) {
	set := pflag.NewFlagSet("kithd", pflag.ContinueOnError)
	f := AddFlags(set)
	if err := set.Parse([]string{"--config", filepath.Join(t.TempDir(), "none.yaml")}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("err = %v", err)
	}
}

func TestEveryKeyHasItsFlagAndHelp(t *testing.T) {
	set := pflag.NewFlagSet("kithd", pflag.ContinueOnError)
	AddFlags(set)
	for flag, key := range map[string]string{
		"peer-api-port": "peerAPIPort", "wireguard-port": "wireguardPort", "discovery.dns-domains": "discovery.dnsDomains",
		"kubeconfig-context": "kubeconfigContext", "log-level": "logLevel",
	} {
		if set.Lookup(flag) == nil {
			t.Errorf("%s has no flag --%s", key, flag)
		}
	}
	for _, k := range keys {
		if set.Lookup(k.Flag()) == nil || k.Help == "" || k.Allowed == "" {
			t.Errorf("%s: %+v", k.Name, k)
		}
		// What the table says is the default must be allowed.
		if !k.Follows && !k.List {
			if err := k.apply(new(Config), []string{k.Default}); err != nil {
				t.Errorf("default: %v", err)
			}
		}
	}
	if usage := set.FlagUsages(); !strings.Contains(usage, "--discovery.lan ") || !strings.Contains(usage, "(default 6450)") {
		t.Error(usage)
	}
}

func TestHostNamesBecomeLabels(t *testing.T) {
	for host, want := range map[string]string{
		"alice": "alice", "Alice.local": "alice", "Bob's MacBook": "bob-s-macbook", "-": "kith", "": "kith",
		"ünï": "n", strings.Repeat("a", 62) + "-b": strings.Repeat("a", 62),
	} {
		if got := labelOf(host); got != want || !isLabel(got) {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name: bob\ndiscovery: {lan: true, dnsDomains: [a.b]}\n")
	f.Add(Example())
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, content string) {
		c := Default()
		if parse(&c, []byte(content)) == nil && c.complete(places.Here(), func() (string, error) { return "h", nil }) == nil {
			c.check()
		}
	})
}
