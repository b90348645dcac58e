package dns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	corefile "github.com/coredns/coredns/plugin/pkg/parse"
)

func TestOnlyServersThatPodsCanAskAreTaken(t *testing.T) {
	node := netip.MustParseAddr("10.42.255.1")
	for _, tt := range []struct{ text, want string }{
		{"nameserver 192.0.2.1\n", "192.0.2.1"},
		{"nameserver 127.0.0.53\nnameserver ::1\n", ""},
		{"nameserver 10.42.255.1\nnameserver 192.0.2.1\nnameserver 192.0.2.1\n", "192.0.2.1"},
		{"nameserver fe80::1%eth0\nnameserver 2001:db8::1\n", "2001:db8::1"},
		{"nameserver fe80::1%eth0\nnameserver fe80::1%{\nnameserver fe80::1\nnameserver 2001:db8::1%eth0\n", ""},
		{"# nameserver 192.0.2.9\nsearch example.org\nnameserver\nnameserver x\nnameserver 0.0.0.0\n", ""},
		{"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n", "192.0.2.1 192.0.2.2 192.0.2.3"},
	} {
		var got []string
		for _, s := range parse(tt.text, node).servers {
			got = append(got, s.String())
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q: %v, want %s", tt.text, got, tt.want)
		}
	}
}

// Routers name themselves by a link-local address (RFC 8106). Pods are not on that link; the cluster's DNS asks for them.
func TestAServerOnTheLinkIsAskedForPods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	for text, want := range map[string]string{
		"nameserver fe80::1%eth0\nnameserver fe80::2%{\noptions edns0\n": "[fe80::1%eth0]",
		"nameserver fe80::1%eth0\nnameserver 192.0.2.1\n":                "[192.0.2.1]",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := upstreams([]string{path})
		if got := fmt.Sprint(r.asked()); got != want || strings.Contains(r.String(), "fe80") {
			t.Errorf("%q: asked is %s, want %s; pods are told %q", text, got, want, r)
		}
	}
	to, err := corefile.HostPortOrFile("[fe80::1%eth0]:53") // as CoreDNS reads a Corefile
	if err != nil || !slices.Equal(to, []string{"[fe80::1%eth0]:53"}) {
		t.Errorf("CoreDNS takes %v, %v", to, err)
	}
}

func TestResolvedsListIsReadWhenTheFirstIsLoopback(t *testing.T) {
	dir := t.TempDir()
	stub, real, missing := filepath.Join(dir, "stub"), filepath.Join(dir, "real"), filepath.Join(dir, "missing")
	for path, text := range map[string]string{stub: "nameserver 127.0.0.53\noptions edns0\n", real: "nameserver 192.0.2.7\nsearch lan\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := upstreams([]string{missing, stub, real}).String(); got != "nameserver 192.0.2.7\nsearch lan\n" {
		t.Errorf("got %q", got)
	}
	if got := upstreams([]string{missing, stub}).String(); got != "" {
		t.Errorf("offline: got %q", got)
	}
}

// TestCorefileParses has CoreDNS's own parser read what we write, with and without servers to ask.
func TestCorefileParses(t *testing.T) {
	o := Options{NodeIP: netip.MustParseAddr("10.42.255.1"), Port: 10053, Kubeconfig: "/pki/dns.kubeconfig"}
	for _, up := range []resolver{{}, {servers: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}} {
		imports := len(up.servers) > 0
		input := o.corefile(up, imports)
		blocks, err := caddyfile.Parse("Corefile", strings.NewReader(string(input.Contents)), directives)
		if err != nil {
			t.Fatalf("%v in\n%s", err, input.Contents)
		}
		_, forwards := blocks[0].Tokens["forward"]
		if len(blocks) != 1 || blocks[0].Keys[0] != ".:10053" || forwards != (len(up.servers) > 0) {
			t.Errorf("%d blocks, keys %v, forwards %t in\n%s", len(blocks), blocks[0].Keys, forwards, input.Contents)
		}
		if text := string(input.Contents); strings.Contains(text, "multicluster clusterset.local") != imports || strings.Contains(text, "cluster.local clusterset.local in-addr") != imports {
			t.Errorf("imports %t:\n%s", imports, text)
		}
		var _ caddy.Input = input
	}
}
