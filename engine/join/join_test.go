package join

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"kith.dev/engine/pki"
)

func TestATokenIsReadAsItIsPrinted(t *testing.T) {
	for text, good := range map[string]bool{
		"abcdef.0123456789abcdef": true, " abcdef.0123456789abcdef\n": true, "": false, "abcdef": false, "ABCDEF.0123456789abcdef": false,
		"abcdef.0123456789abcde": false, "abcdef.0123456789abcdef0": false, "abcdef:0123456789abcdef": false, "abcdef.0123456789abcdef abcdef.0123456789abcdef": false,
	} {
		token, err := ParseToken(text)
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
		if good && token.String() != strings.TrimSpace(text) {
			t.Errorf("%q: %s", text, token)
		}
		if err != nil && len(text) > 6 && strings.Contains(err.Error(), strings.TrimSpace(text)) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}

func TestTheClusterIsReadAsItIsWritten(t *testing.T) {
	c := Cluster{
		Pods: netip.MustParsePrefix("10.42.0.0/16"), Services: netip.MustParsePrefix("10.43.0.0/16"), DNS: netip.MustParseAddr("10.43.0.10"), DNSPort: 10053,
		Server: "alice", ServerIP: netip.MustParseAddr("10.42.255.1"), ServerLAN: netip.MustParseAddr("192.0.2.11"),
	}
	if got, err := parseCluster(c.data()); err != nil || !reflect.DeepEqual(got, c) {
		t.Errorf("%+v, %v", got, err)
	}
	for key := range c.data() {
		data := c.data()
		if delete(data, key); key == "server-node" {
			continue
		}
		if _, err := parseCluster(data); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("without %s: %v", key, err)
		}
	}
}

// cluster is an API server as far as joining asks, with an authority of its own.
type cluster struct {
	*httptest.Server
	ca, hash string
	token    Token
	data     map[string]string
	version  string
	nodes    string // that there is
	skew     time.Duration
	status   int // instead of any answer
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.Ensure(dir, []pki.Leaf{{Name: "apiserver", Authority: "ca", CommonName: "kube-apiserver", Server: true, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	c := &cluster{ca: read(t, dir, "ca.crt"), token: Token{"abcdef", "0123456789abcdef"}, version: "v1.36.3", nodes: "corp-1"}
	authorities, err := pinned([]byte(c.ca), []string{hashOf(t, c.ca)})
	if err != nil {
		t.Fatal(err)
	}
	c.hash = Hash(authorities[0])
	c.Server = httptest.NewUnstartedServer(c)
	c.Server.TLS = tlsOf(t, dir)
	c.StartTLS()
	t.Cleanup(c.Close)
	config, err := clientcmd.Write(api.Config{Clusters: map[string]*api.Cluster{"": {Server: c.URL, CertificateAuthorityData: []byte(c.ca)}}})
	if err != nil {
		t.Fatal(err)
	}
	c.data = map[string]string{"kubeconfig": string(config)}
	c.sign(t, c.token)
	return c
}

func (c *cluster) sign(t *testing.T, token Token) {
	t.Helper()
	signature, err := jws.ComputeDetachedSignature(c.data["kubeconfig"], token.ID, token.Secret)
	if err != nil {
		t.Fatal(err)
	}
	c.data["jws-kubeconfig-"+token.ID] = signature
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", time.Now().Add(c.skew).UTC().Format(http.TimeFormat))
	if c.status != 0 {
		w.WriteHeader(c.status)
		return
	}
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch path := r.URL.Path; {
	case path == "/api/v1/namespaces/kube-public/configmaps/cluster-info":
		if r.Header.Get("Authorization") != "" {
			w.WriteHeader(http.StatusTeapot) // the token goes to nobody before the server is known
			return
		}
		answer(corev1.ConfigMap{Data: c.data})
	case r.Header.Get("Authorization") != "Bearer "+c.token.String():
		w.WriteHeader(http.StatusUnauthorized)
	case path == "/version":
		answer(map[string]string{"gitVersion": c.version})
	case path == "/api/v1/nodes/"+c.nodes:
		answer(corev1.Node{})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// TestWhatKeepsANodeFromJoiningIsSaid: each time before anything is made, on either side.
func TestWhatKeepsANodeFromJoiningIsSaid(t *testing.T) {
	other := newCluster(t)
	for name, c := range map[string]struct {
		change func(*cluster, *Options)
		want   string
	}{
		"no hash":                   {func(_ *cluster, o *Options) { o.Hashes = nil }, "ca-cert-hash is missing"},
		"no hash, but a word":       {func(_ *cluster, o *Options) { o.Hashes = []string{"sha256:12"} }, `ca-cert-hash "sha256:12": want sha256: and 64`},
		"another cluster's hash":    {func(_ *cluster, o *Options) { o.Hashes = []string{other.hash} }, "not what ca-cert-hash says"},
		"a token of another":        {func(_ *cluster, o *Options) { o.Token.ID = "zzzzzz" }, "the server knows no token zzzzzz: it has expired"},
		"a token with a slip":       {func(_ *cluster, o *Options) { o.Token.Secret = "0123456789abcdee" }, "knows a token abcdef with another secret"},
		"a token that just expired": {func(c *cluster, _ *Options) { c.token.Secret = "fedcba9876543210" }, "does not take the token abcdef"},
		"a name that is taken":      {func(_ *cluster, o *Options) { o.NodeName = "corp-1" }, "there is a node corp-1, and its name belongs to its key: choose another --node-name"},
		"a clock that is late":      {func(c *cluster, _ *Options) { c.skew = time.Hour }, "are 1h0m0s apart"},
		"a clock that is early":     {func(c *cluster, _ *Options) { c.skew = -10 * time.Minute }, "set the clock"},
		"a newer server":            {func(c *cluster, _ *Options) { c.version = "v1.40.0" }, "this is Kubernetes v1.36.3 and the server has v1.40.0"},
		"an older server":           {func(c *cluster, _ *Options) { c.version = "v1.35.9" }, "up to three minor versions older than its server, and not newer"},
		"a server without --agents": {func(c *cluster, _ *Options) { c.status = 403 }, "lets no nodes join (it answers 403 Forbidden): start it with --agents"},
		"a server that is ill":      {func(c *cluster, _ *Options) { c.status = 500 }, "answers 500"},
		"nobody there":              {func(c *cluster, _ *Options) { c.Close() }, "cannot be reached: dial tcp 127.0.0.1:"},
		"a liar with the cluster's own words": {func(c *cluster, o *Options) {
			o.Hashes = []string{other.hash}
			c.data["kubeconfig"] = other.data["kubeconfig"]
			signature, _ := jws.ComputeDetachedSignature(c.data["kubeconfig"], c.token.ID, c.token.Secret)
			c.data["jws-kubeconfig-abcdef"] = signature
		}, "has no certificate of the authority that ca-cert-hash names"},
	} {
		t.Run(name, func(t *testing.T) {
			here := newCluster(t)
			dir := filepath.Join(t.TempDir(), "pki")
			o := Options{Server: here.URL, Token: here.token, Hashes: []string{here.hash}, NodeName: "corp-2", Version: "v1.36.3", Dir: dir, CertDir: dir, patience: time.Nanosecond}
			c.change(here, &o)
			err := Join(t.Context(), o, slog.New(slog.NewTextHandler(io.Discard, nil)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), o.Token.Secret) {
				t.Error("the error tells the secret")
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("something was made")
			}
		})
	}
}

func TestOnlyPinnedAuthoritiesAreTrusted(t *testing.T) {
	one, two := newCluster(t), newCluster(t)
	good, err := pinned([]byte(one.ca+two.ca), []string{two.hash})
	if err != nil || len(good) != 1 || Hash(good[0]) != two.hash {
		t.Errorf("%v, %v", good, err)
	}
}

func TestVersions(t *testing.T) {
	for pair, good := range map[string]bool{
		"v1.36.3 v1.36.0": true, "v1.36.0 v1.36.3": true, "v1.33.1 v1.36.0": true, "v1.32.1 v1.36.0": false, "v1.37.0 v1.36.9": false, "v2.36.0 v1.36.0": false,
		"v0.0.0-master+x v1.36.0": false, "none v1.36.0": true, "v1.36.0 none": false,
	} {
		mine, server, _ := strings.Cut(pair, " ")
		if err := supported(mine, server); (err == nil) != good {
			t.Errorf("%s: %v", pair, err)
		}
	}
}

// TestANodeThatJoinedNeedsNoToken: it starts from what it was given, and refuses to become another's.
func TestANodeThatJoinedNeedsNoToken(t *testing.T) {
	c, now := newCluster(t), time.Now()
	dir := t.TempDir()
	o := Options{NodeName: "corp-2", Dir: filepath.Join(dir, "pki"), CertDir: filepath.Join(dir, "kubelet")}
	if joined, err := Joined(o, now); joined || err != nil {
		t.Fatalf("an empty folder: %v, %v", joined, err)
	}
	issued := t.TempDir()
	if _, err := pki.Ensure(issued, []pki.Leaf{{Name: "node", Authority: "ca", CommonName: "system:node:corp-2"}}, now); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(o.CertDir, "kubelet-client-current.pem"), read(t, issued, "node.crt")+read(t, issued, "node.key"))
	write(t, o.authority(), c.ca)
	config := api.Config{Clusters: map[string]*api.Cluster{"default-cluster": {Server: "https://192.0.2.2:6443"}}}
	if err := clientcmd.WriteToFile(config, o.kubeconfig()); err != nil {
		t.Fatal(err)
	}
	for name, step := range map[string]struct {
		change func(*Options)
		at     time.Time
		want   string
	}{
		"as it was":           {func(*Options) {}, now, ""},
		"told it all again":   {func(o *Options) { o.Hashes, o.Token = []string{c.hash}, c.token }, now, ""},
		"another cluster":     {func(o *Options) { o.Hashes = []string{newCluster(t).hash} }, now, "a node of another cluster"},
		"another name":        {func(o *Options) { o.NodeName = "corp-3" }, now, "this machine is node corp-2, not corp-3"},
		"after two years off": {func(*Options) {}, now.AddDate(2, 0, 0), "this node's certificate ended on"},
	} {
		o := o
		step.change(&o)
		joined, err := Joined(o, step.at)
		if step.want == "" && (!joined || err != nil) || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s: %v, %v", name, joined, err)
		}
	}
	o.Server = "https://192.0.2.99:6443"
	if joined, err := Joined(o, now); !joined || err != nil || ServerOf(dir) != o.Server {
		t.Errorf("moved: %v, %v, %s", joined, err, ServerOf(dir))
	}
	if err := Forget(o); err != nil {
		t.Fatal(err)
	}
	if joined, err := Joined(o, now); joined || err != nil || ServerOf(dir) != "" {
		t.Errorf("after reset: %v, %v", joined, err)
	}
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
