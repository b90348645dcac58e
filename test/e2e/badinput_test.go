//go:build lab && soak

package e2e

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/trust/identity"
	"kith.dev/test/lab"
)

// TestBadInput: what makes no sense, or comes from who must not, gives one clear line and changes nothing.
func TestBadInput(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	w := &badInput{t: t, alice: l.Laptop("alice"), bob: l.Laptop("bob")}
	befriend(t, w.alice, w.bob, "--cpu", "300m", "--memory", "256Mi", "--pods", "6")
	before := w.books()
	if !strings.Contains(before, "Contract/") {
		t.Fatalf("the books are empty: %q", before)
	}
	t.Run("at the command line", w.commands)
	t.Run("a contract with one bit flipped", w.flipped)
	t.Run("at the socket", w.socket)
	t.Run("by who is not in the group", w.strangersAtTheSocket)
	t.Run("at the peer API", w.peerAPI)
	t.Run("in custom resources", w.resources)
	t.Run("at the virtual kubelet's port", w.kubelet)
	if after := w.books(); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
	for _, p := range l.Laptops() {
		eventually(t, 20*time.Second, p.Name()+" is well", func() string { return engineReady(t, p) })
	}
}

type badInput struct {
	t          *testing.T
	alice, bob *lab.Laptop
}

// books is everything that bad input could have changed.
func (w *badInput) books() string {
	w.t.Helper()
	text := ""
	for _, p := range []*lab.Laptop{w.alice, w.bob} {
		text += kubectl(w.t, p, "get", "peers.kith.dev,peeringrequests,contracts.kith.dev,sharingpolicies,namespaceoffloadings", "-A",
			"-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name}/{.metadata.uid}/{.metadata.generation} {.status.outgoing.state}{.status.incoming.state}{.status.state}{"\n"}{end}`)
	}
	return text
}

// oneLine is the complaint of a command that failed: one line, and perhaps one with what to do.
func oneLine(t *testing.T, what, text string, words ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > 3 || text == "" || strings.Contains(text, "goroutine ") || strings.Contains(text, "panic") {
		t.Errorf("%s: %q", what, text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s: nothing of %q in %q", what, word, text)
		}
	}
}

func (w *badInput) commands(t *testing.T) {
	for _, c := range []struct {
		args  string
		words []string
	}{
		{"peer nobody", []string{"nobody"}},
		{"unpeer nobody --yes", []string{"nobody"}},
		{"forget nobody --yes", []string{"nobody"}},
		{"accept nobody", []string{"nobody"}},
		{"peer 192.0.2.12:99999", []string{"99999"}},
		{"peer 300.1.2.3:6450", []string{"300.1.2.3"}},
		{"peer add not:an:address", []string{"not:an:address"}},
		{"peer add [::1:6450", []string{"[::1"}},
		{"peer bob --cpu lots", []string{"cpu", "lots"}},
		{"peer bob --memory -4Gi", []string{"memory"}},
		{"peer bob --cpu 1e999999999999", []string{"cpu"}},
		{"peer bob --cpu 1e-99999999", []string{"cpu"}},
		{"peer bob --memory 4GiB", []string{"memory", "4GiB"}},
		{"peer bob --pods 1.5x", []string{"pods"}},
		{"share 120%", []string{"120"}},
		{"share --cpu 1e-99999999", []string{"cpu"}},
		{"offload nowhere", []string{"nowhere"}},
		{"offload ../../etc", []string{"etc"}},
		{"contract verify ./nothing.json", []string{"nothing.json"}},
		{"contract verify nothing", []string{"nothing"}},
	} {
		out, stderr, err := w.alice.Exec(t.Context(), append([]string{"timeout", "200", "kith"}, strings.Fields(c.args)...)...)
		if err == nil {
			t.Errorf("kith %s: passes: %s", c.args, out)
			continue
		}
		oneLine(t, "kith "+c.args, stderr, c.words...)
	}
}

func (w *badInput) flipped(t *testing.T) {
	name := strings.TrimPrefix(strings.TrimSpace(kubectl(t, w.alice, "get", "contracts", "-o", "name")), "contract.kith.dev/")
	good := kith(t, w.alice, "contract", "show", name, "-o", "json")
	var whole map[string]any
	if err := json.Unmarshal([]byte(good), &whole); err != nil {
		t.Fatal(err)
	}
	if out, _, err := w.alice.ExecInput(t.Context(), strings.NewReader(good), "kith", "contract", "verify", "-"); err != nil {
		t.Fatalf("the contract as it is: %v %s", err, out)
	}
	tried := 0
	for i := range len(good) {
		c := good[i] // letters and digits: punctuation of JSON would only be malformed
		if i%97 != 0 || c < '0' || c > 'z' || c > '9' && c < 'A' {
			continue
		}
		bad := []byte(good)
		bad[i] ^= 1
		var other map[string]any
		if json.Unmarshal(bad, &other) != nil || fmt.Sprint(other["document"]) == fmt.Sprint(whole["document"]) && fmt.Sprint(other["signatures"]) == fmt.Sprint(whole["signatures"]) {
			continue // not of what was signed
		}
		tried++
		out, stderr, err := w.alice.ExecInput(t.Context(), bytes.NewReader(bad), "kith", "contract", "verify", "-")
		if err == nil {
			t.Errorf("bit 0 of byte %d flipped, and it holds: %s", i, out)
			continue
		}
		oneLine(t, "a flipped bit", stderr, "contract")
		if tried >= 12 {
			break
		}
	}
	if tried < 3 {
		t.Errorf("only %d bits were tried in %s", tried, good)
	}
}

func (w *badInput) socket(t *testing.T) {
	c, long := local(w.alice), &endless{left: 64 << 20}
	for _, one := range []struct {
		method, path string
		body         io.Reader
	}{
		{"POST", "/v1/peers/bob/ask", strings.NewReader("\x00\xff garbage")},
		{"POST", "/v1/peers/bob/ask", strings.NewReader(`{"resources":{"cpu":"1e-99999999"}}`)},
		{"POST", "/v1/peers/bob/ask", strings.NewReader(`{"resources":` + strings.Repeat("[", 100_000))},
		{"POST", "/v1/peers", strings.NewReader(`{"address":"\u0000:1"}`)},
		{"POST", "/v1/peers", long},
		{"DELETE", "/v1/peers/%2e%2e%2f", nil},
		{"GET", "/v1/nothing", nil},
		{"PUT", "/v9/peers", strings.NewReader("{}")},
		{"PATCH", "/v1/policies/default", strings.NewReader(`{"amounts":{"cpu":"a lot"}}`)},
	} {
		r, err := http.NewRequestWithContext(t.Context(), one.method, "http://kithd"+one.path, one.body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(r)
		if err != nil {
			if one.body != long { // that was cut while it was being sent
				t.Errorf("%s %s: %v", one.method, one.path, err)
			}
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var said struct{ Error struct{ Message string } }
		if resp.StatusCode < 400 || resp.StatusCode == 500 || json.Unmarshal(text, &said) != nil || said.Error.Message == "" || strings.Contains(said.Error.Message, "\n") {
			t.Errorf("%s %s: %s %s", one.method, one.path, resp.Status, text)
		}
	}
	if n := long.read.Load(); n == 0 || n > 8<<20 {
		t.Errorf("kithd read %d bytes of a body without end", n)
	}
}

// strangersAtTheSocket calls as users of the laptop: one in the group kith, and one who is not.
func (w *badInput) strangersAtTheSocket(t *testing.T) {
	if _, stderr, err := w.alice.Exec(t.Context(), "sh", "-ec", "grep -q ^kith: /etc/group || echo kith:x:4711: >> /etc/group"); err != nil {
		t.Fatal(stderr)
	}
	if err := w.alice.RestartDaemon(t.Context()); err != nil { // the socket is given to the group when it is made
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "alice is back", func() string { return engineReady(t, w.alice) })
	group, _, err := w.alice.Exec(t.Context(), "sh", "-c", "grep ^kith: /etc/group | cut -d: -f3")
	if err != nil {
		t.Fatal(err)
	}
	as := func(gid string, args ...string) (string, string, error) {
		return w.alice.Exec(t.Context(), append([]string{"setpriv", "--reuid=65534", "--regid=" + gid, "--clear-groups", "--no-new-privs"}, args...)...)
	}
	if out, stderr, err := as(strings.TrimSpace(group), "kith", "status"); err != nil {
		t.Errorf("a member of the group: %v %s %s", err, out, stderr)
	}
	out, stderr, err := as("65534", "kith", "status")
	if err == nil {
		t.Errorf("a stranger: %s", out)
	}
	oneLine(t, "a stranger", stderr, "you may not talk to kithd")
	// Should the file's mode not hold them back, the daemon does: it asks the kernel who called.
	if _, _, err := w.alice.Exec(t.Context(), "chmod", "666", "/run/kith/kith.sock"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"status"}, {"peers"}, {"unpeer", "bob", "--yes"}, {"share", "off"}} {
		out, stderr, err := as("65534", append([]string{"kith"}, args...)...)
		if err == nil {
			t.Errorf("a stranger may kith %v: %s", args, out)
		}
		oneLine(t, fmt.Sprint(args), stderr, "may not talk to kithd")
	}
	if !slices.ContainsFunc(strings.Split(logOf(t, w.alice), "\n"), func(line string) bool {
		return strings.Contains(line, "msg=refused") && strings.Contains(line, "door=socket") && strings.Contains(line, `user="uid 65534"`)
	}) {
		t.Error("the log says nothing of the stranger at the socket")
	}
	if _, _, err := w.alice.Exec(t.Context(), "chmod", "660", "/run/kith/kith.sock"); err != nil {
		t.Fatal(err)
	}
}

// peerAPI sends what no Kith sends, with a key of nobody's.
func (w *badInput) peerAPI(t *testing.T) {
	me, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at, err := w.bob.Address()
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(at.String(), "6450")
	c := caller(w.alice, address, me.ClientTLS(identity.ID{}))
	c.Timeout = 30 * time.Second
	for _, one := range []struct {
		method, path, kind string
		body               io.Reader
		code               peering.Code
	}{
		{"GET", "/kith/v9/hello", "", nil, peering.CodeVersion},
		{"GET", "/kith/v2/nothing", "", nil, peering.CodeNotFound},
		{"GET", "/", "", nil, peering.CodeNotFound},
		{"POST", "/kith/v2/requests", "application/json", strings.NewReader("\x00garbage"), peering.CodeBadRequest},
		{"POST", "/kith/v2/requests", "text/plain", strings.NewReader("{}"), peering.CodeBadRequest},
		{"POST", "/kith/v2/requests/x/question", "application/json", strings.NewReader(`{"nonce":"","question":{"name":"x","resources":{"cpu":"1e-99999999"}}}`), peering.CodeBadRequest},
		{"POST", "/kith/v2/requests", "application/json", bytes.NewReader(make([]byte, 1<<20)), peering.CodeTooLarge},
		{"POST", "/kith/v2/contracts", "application/json", strings.NewReader(`{"document":"e30="}`), peering.CodeBadRequest},
		{"PUT", "/kith/v2/link", "application/json", strings.NewReader(`{"publicKey":"x"}`), peering.CodeBadRequest},
	} {
		r, err := http.NewRequestWithContext(t.Context(), one.method, "https://bob"+one.path, one.body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", one.kind)
		resp, err := c.Do(r)
		if err != nil {
			t.Errorf("%s %s: %v", one.method, one.path, err)
			continue
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var p peering.Problem
		if json.Unmarshal(text, &p) != nil || p.Code != one.code || strings.Contains(p.Message, "\n") || p.Message == "" {
			t.Errorf("%s %s: %s %s, want %s", one.method, one.path, resp.Status, text, one.code)
		}
	}
	// Handshakes that are none: cut in the middle, of other protocols, of another version.
	for name, bytes := range map[string]string{
		"cut": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "plain HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH": "SSH-2.0-OpenSSH\r\n", "nothing": "",
	} {
		tcp, err := w.alice.Dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(tcp, bytes)
		tcp.(interface{ CloseWrite() error }).CloseWrite()
		tcp.SetReadDeadline(time.Now().Add(20 * time.Second))
		if answer, err := io.ReadAll(tcp); err != nil && !strings.Contains(err.Error(), "reset") || strings.Contains(string(answer), "kith/v2") {
			t.Errorf("%s: %q %v", name, answer, err)
		}
		tcp.Close()
	}
	old := me.ClientTLS(identity.ID{})
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, err := knock(t.Context(), w.alice, address, old); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2: %v", err)
	}
	if list := requests(t, w.bob); len(list) != 0 {
		t.Errorf("bob was asked: %+v", list)
	}
}

// resources are written with kubectl, where CEL and schemas are the guard.
func (w *badInput) resources(t *testing.T) {
	for _, c := range []struct{ what, manifest, word string }{
		{"a peer with no ID", `{"apiVersion":"kith.dev/v1alpha1","kind":"Peer","metadata":{"name":"x"},"spec":{"id":"nonsense"}}`, "spec.id"},
		{"a share of 120%", `{"apiVersion":"kith.dev/v1alpha1","kind":"SharingPolicy","metadata":{"name":"x"},"spec":{"amounts":{"cpu":"120%"}}}`, "amounts"},
		{"an amount that takes hours to parse", `{"apiVersion":"kith.dev/v1alpha1","kind":"SharingPolicy","metadata":{"name":"x"},"spec":{"amounts":{"cpu":"1e-99999999"}}}`, "amounts"},
		{"no level at all", `{"apiVersion":"kith.dev/v1alpha1","kind":"SharingPolicy","metadata":{"name":"x"},"spec":{"podSecurity":"lax","amounts":{"cpu":"1"}}}`, "spec.podSecurity: Unsupported"},
		{"an unknown strategy", `{"apiVersion":"kith.dev/v1alpha1","kind":"NamespaceOffloading","metadata":{"name":"offloading","namespace":"default"},"spec":{"strategy":"Everywhere"}}`, "spec.strategy: Unsupported"},
	} {
		out, err := w.alice.KubectlInput(t.Context(), strings.NewReader(c.manifest), "apply", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v %s", c.what, err, out)
		}
	}
}

// kubelet knocks at the port of alice's virtual node, where logs and exec of pods abroad are.
func (w *badInput) kubelet(t *testing.T) {
	port := kubectl(t, w.alice, "get", "node", "kith-bob", "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")
	address := net.JoinHostPort("10.42.255.1", strings.TrimSpace(port))
	me, err := identity.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(certificates ...tls.Certificate) (int, error) {
		c := http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: w.alice.Dial,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}}
		resp, err := c.Get("https://" + address + "/containerLogs/shop/web/web")
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, nil
	}
	if code, err := ask(); err != nil || code != http.StatusUnauthorized {
		t.Errorf("without a certificate: %d %v", code, err)
	}
	// A certificate that the server does not ask for is not even sent.
	if code, err := ask(me.Certificate()); err == nil && code != http.StatusUnauthorized {
		t.Errorf("with a certificate of one's own: %d", code)
	}
	own := strangersCertificate(t, "system:masters", "kube-apiserver-kubelet-client")
	if code, err := ask(own); err == nil && code != http.StatusUnauthorized {
		t.Errorf("with a certificate that only says it is the API server's: %d", code)
	}
	kubectl(t, w.alice, "create", "namespace", "shop")
	kith(t, w.alice, "offload", "shop")
	apply(t, w.alice, solo("web", "kith-bob"))
	waitReady(t, w.alice, 1, "-n", "shop", "-l", "app=web")
	if out := kubectl(t, w.alice, "-n", "shop", "exec", "web", "--", "/app", "echo", "hello"); !strings.Contains(out, "hello") {
		t.Errorf("the API server is let in: %q", out)
	}
	user, err := clientOf(w.alice, t)
	if err != nil {
		t.Fatal(err)
	}
	if code, err := ask(user); err != nil || code != http.StatusForbidden {
		t.Errorf("with a certificate of the cluster, of a user who may not: %d %v", code, err)
	}
	kith(t, w.alice, "unoffload", "shop")
	kubectl(t, w.alice, "delete", "namespace", "shop")
	lines := strings.Split(logOf(t, w.alice), "\n")
	for _, why := range []string{"no client certificate", "user mallory may not get nodes/proxy"} {
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, "msg=refused door=kubelet") && strings.Contains(line, why)
		}) {
			t.Errorf("the log does not tell of who was not let in: %s", why)
		}
	}
}

// strangersCertificate says what it likes, signed by itself.
func strangersCertificate(t *testing.T, organization, name string) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{organization}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// clientOf has the cluster of a laptop sign a certificate for user mallory, who may nothing.
func clientOf(p *lab.Laptop, t *testing.T) (tls.Certificate, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "mallory"}}, private)
	if err != nil {
		return tls.Certificate{}, err
	}
	request, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	if err != nil {
		return tls.Certificate{}, err
	}
	apply(t, p, `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"mallory"},"spec":{"request":`+string(request)+`,"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"]}}`)
	kubectl(t, p, "certificate", "approve", "mallory")
	var signed []byte
	eventually(t, 20*time.Second, "the certificate is signed", func() string {
		out := kubectl(t, p, "get", "csr", "mallory", "-o", "jsonpath={.status.certificate}")
		if err := json.Unmarshal([]byte(`"`+out+`"`), &signed); err != nil || len(signed) == 0 {
			return fmt.Sprintf("%v %q", err, out)
		}
		return ""
	})
	block, _ := pem.Decode(signed)
	if block == nil {
		return tls.Certificate{}, fmt.Errorf("no certificate: %s", signed)
	}
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: private}, nil
}
