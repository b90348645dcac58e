package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// handshake joins the two and says how each end fared. In TLS 1.3 a client learns of a refusal when it
// reads, so it reads the byte the server writes.
func handshake(t *testing.T, server, client *tls.Config) (s, c tls.ConnectionState, sErr, cErr error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := listener.Accept()
		if err != nil {
			sErr = err
			return
		}
		raw.SetDeadline(time.Now().Add(2 * time.Minute))
		conn := tls.Server(raw, server)
		defer conn.Close()
		if sErr = conn.Handshake(); sErr == nil {
			s = conn.ConnectionState()
			_, sErr = conn.Write([]byte("k"))
		}
	}()
	raw, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	raw.SetDeadline(time.Now().Add(2 * time.Minute))
	conn := tls.Client(raw, client)
	if cErr = conn.Handshake(); cErr == nil {
		c = conn.ConnectionState()
		_, cErr = io.ReadFull(conn, make([]byte, 1))
	}
	conn.Close()
	<-done
	return s, c, sErr, cErr
}

func TestBothEndsLearnWhoTheOtherIs(t *testing.T) {
	alice, bob := load(t), load(t)
	for _, expect := range []ID{bob.ID(), {}} {
		s, c, sErr, cErr := handshake(t, bob.ServerTLS(), alice.ClientTLS(expect))
		if sErr != nil || cErr != nil {
			t.Fatal(sErr, cErr)
		}
		if id, pub, err := PeerOf(s); err != nil || id != alice.ID() || !pub.Equal(alice.Public()) {
			t.Errorf("server sees %s, %v", id, err)
		}
		if id, _, err := PeerOf(c); err != nil || id != bob.ID() {
			t.Errorf("client sees %s, %v", id, err)
		}
		if s.Version != tls.VersionTLS13 || c.NegotiatedProtocol != "h2" {
			t.Errorf("version %x, protocol %q", s.Version, c.NegotiatedProtocol)
		}
	}
}

func TestWrongKeyIsNamed(t *testing.T) {
	alice, bob, mallory := load(t), load(t), load(t)
	_, _, sErr, cErr := handshake(t, mallory.ServerTLS(), alice.ClientTLS(bob.ID()))
	var mismatch *MismatchError
	if !errors.As(cErr, &mismatch) || mismatch.Want != bob.ID() || mismatch.Got != mallory.ID() {
		t.Errorf("client: %v", cErr)
	}
	if sErr == nil {
		t.Error("the server noticed nothing")
	}
	if s := cErr.Error(); !strings.Contains(s, bob.ID().String()) || !strings.Contains(s, mallory.ID().String()) {
		t.Errorf("does not name both: %s", s)
	}
}

func TestRefusedHandshakes(t *testing.T) {
	alice, bob := load(t), load(t)
	with := func(change func(*tls.Config)) *tls.Config {
		c := alice.ClientTLS(bob.ID())
		change(c)
		return c
	}
	stolen := bob.Certificate() // bob's certificate is public; his key is not
	stolen.PrivateKey = alice.key
	chain := alice.Certificate()
	chain.Certificate = append([][]byte{chain.Certificate[0]}, bob.Certificate().Certificate[0])
	for name, client := range map[string]*tls.Config{
		"no certificate":        with(func(c *tls.Config) { c.Certificates = nil }),
		"TLS 1.2":               with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }),
		"an ECDSA certificate":  with(func(c *tls.Config) { c.Certificates = []tls.Certificate{ecdsaCertificate(t)} }),
		"issued by another key": with(func(c *tls.Config) { c.Certificates = []tls.Certificate{issuedBy(t, alice, bob)} }),
		"stolen certificate":    with(func(c *tls.Config) { c.Certificates = []tls.Certificate{stolen} }),
		"a chain":               with(func(c *tls.Config) { c.Certificates = []tls.Certificate{chain} }),
		"no common protocol":    with(func(c *tls.Config) { c.NextProtos = []string{"imap"} }),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, sErr, cErr := handshake(t, bob.ServerTLS(), client)
			if sErr == nil || cErr == nil {
				t.Errorf("passes: server %v, client %v", sErr, cErr)
			}
		})
	}
	t.Run("server with TLS 1.2", func(t *testing.T) {
		server := bob.ServerTLS()
		server.MinVersion, server.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		if _, _, _, cErr := handshake(t, server, alice.ClientTLS(bob.ID())); cErr == nil {
			t.Error("passes")
		}
	})
}

func TestEveryConnectionProvesItsKeyAfresh(t *testing.T) {
	alice, bob := load(t), load(t)
	client := alice.ClientTLS(bob.ID())
	client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	server := bob.ServerTLS()
	for range 3 {
		_, c, sErr, cErr := handshake(t, server, client)
		if sErr != nil || cErr != nil || c.DidResume {
			t.Fatalf("resumed %v, %v, %v", c.DidResume, sErr, cErr)
		}
	}
}

func TestHTTP2BetweenTwoDaemons(t *testing.T) {
	alice, bob := load(t), load(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _, err := PeerOf(*r.TLS)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		io.WriteString(w, r.Proto+" "+id.String())
	}))
	server.TLS = bob.ServerTLS()
	server.StartTLS()
	defer server.Close()
	transport := &http.Transport{TLSClientConfig: alice.ClientTLS(bob.ID()), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "HTTP/2.0 "+alice.ID().String() {
		t.Errorf("%s", body)
	}
}

func TestPeerOfNeedsAHandshake(t *testing.T) {
	if _, _, err := PeerOf(tls.ConnectionState{}); err == nil {
		t.Error("nobody is somebody")
	}
}

func ecdsaCertificate(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// issuedBy certifies holder's key with issuer's: the names match, the signature does not fit the key.
func issuedBy(t *testing.T, holder, issuer *Identity) tls.Certificate {
	leaf := holder.Certificate().Leaf
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer.Certificate().Leaf, holder.Public(), issuer.key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: holder.key}
}
