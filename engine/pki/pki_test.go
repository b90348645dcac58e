package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var now = time.Now()

func leaves() []Leaf {
	return []Leaf{
		{Name: "server", Authority: "ca", CommonName: "kube-apiserver", DNS: []string{"localhost"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Server: true},
		{Name: "admin", Authority: "ca", CommonName: "kith:admin", Orgs: []string{"system:masters"}},
		{Name: "proxy-client", Authority: "front-proxy-ca", CommonName: "front-proxy-client"},
	}
}

func ensure(t *testing.T, dir string, leaves []Leaf, at time.Time) []string {
	t.Helper()
	made, err := Ensure(dir, leaves, at)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestLeavesAreMadeOnceAndRenewedInTime(t *testing.T) {
	dir := t.TempDir()
	all := []string{"server", "admin", "proxy-client"}
	for _, tt := range []struct {
		what string
		at   time.Time
		want []string
	}{
		{"first", now, all},
		{"again", now, nil},
		{"just before it is time", now.Add(LeafLife - RenewBefore - time.Minute), nil},
		{"when 90 days are left", now.Add(LeafLife - RenewBefore + time.Minute), all},
	} {
		if made := ensure(t, dir, leaves(), tt.at); !slices.Equal(made, tt.want) {
			t.Errorf("%s: made %v, want %v", tt.what, made, tt.want)
		}
	}
	admin, err := readCert(filepath.Join(dir, "admin.crt"))
	if err != nil || admin.NotAfter.Sub(now) < LeafLife {
		t.Errorf("admin ends %s, %v: the renewed one must last a year more", admin.NotAfter, err)
	}
}

func TestLeafFromAFutureClockIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, leaves(), now) // the authority, from when the clock was right
	ensure(t, dir, leaves(), now.Add(LeafLife))
	if made := ensure(t, dir, leaves(), now); len(made) != 3 {
		t.Errorf("made %v: certificates that are not valid yet were kept", made)
	}
}

func TestLeafThatIsNotWhatIsWantedIsMadeAnew(t *testing.T) {
	for what, change := range map[string]func(*Leaf){
		"name of the server": func(l *Leaf) { l.DNS = []string{"alice"} },
		"address":            func(l *Leaf) { l.IPs = []netip.Addr{netip.MustParseAddr("10.42.255.1")} },
		"group":              func(l *Leaf) { l.Orgs = []string{"system:nodes"} },
		"user":               func(l *Leaf) { l.CommonName = "system:node:alice" },
		"authority":          func(l *Leaf) { l.Authority = "front-proxy-ca" },
		"use":                func(l *Leaf) { l.Server = false },
	} {
		dir := t.TempDir()
		want := leaves()
		ensure(t, dir, want, now)
		change(&want[0])
		if made := ensure(t, dir, want, now); !slices.Equal(made, []string{"server"}) {
			t.Errorf("other %s: made %v, want server alone", what, made)
		}
	}
}

func TestDamagedLeafIsMadeAnewAndDamagedAuthorityIsNot(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, leaves(), now)
	ca := read(t, filepath.Join(dir, "ca.crt"))
	if err := os.Truncate(filepath.Join(dir, "admin.key"), 10); err != nil {
		t.Fatal(err)
	}
	if made := ensure(t, dir, leaves(), now); !slices.Equal(made, []string{"admin"}) {
		t.Errorf("made %v, want admin alone", made)
	}
	// A new authority would lock out everybody who trusts the old one: that is for the owner to decide.
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), read(t, filepath.Join(dir, "admin.key")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(dir, leaves(), now); err == nil {
		t.Error("an authority with a foreign key was used")
	}
	if !bytes.Equal(ca, read(t, filepath.Join(dir, "ca.crt"))) {
		t.Error("the authority was replaced")
	}
}

func TestOnlyRootReadsTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	ensure(t, dir, leaves(), now)
	if err := EnsureKey(dir, "service-account"); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", st.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 11 {
		t.Errorf("%d files, want 2 authorities and 3 leaves in pairs, and a key", len(entries))
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

func TestKeyOfServiceAccountsIsKept(t *testing.T) {
	dir := t.TempDir()
	var keys [2][]byte
	for i := range keys {
		if err := EnsureKey(dir, "service-account"); err != nil {
			t.Fatal(err)
		}
		keys[i] = read(t, filepath.Join(dir, "service-account.key"))
	}
	if !bytes.Equal(keys[0], keys[1]) {
		t.Error("a new key: all tokens of pods would end")
	}
}

// TestKubeconfigsLeadIn makes a TLS server of the leaves that shows who came, and comes with both kinds of kubeconfig.
func TestKubeconfigsLeadIn(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, leaves(), now)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(read(t, filepath.Join(dir, "ca.crt")))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := r.TLS.PeerCertificates[0].Subject
		w.Header().Set("Who", who.CommonName+" of "+who.Organization[0])
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()
	for name, write := range map[string]func(path, dir, leaf, server string) error{"files": WriteKubeconfig, "bytes": EmbedKubeconfig} {
		path := filepath.Join(t.TempDir(), "some", "kubeconfig")
		if err := write(path, dir, "admin", server.URL); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", name, st.Mode(), err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(config.Host)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resp.Body.Close()
		if who := resp.Header.Get("Who"); who != "kith:admin of system:masters" {
			t.Errorf("%s: came as %q", name, who)
		}
	}
}
