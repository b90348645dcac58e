package frontdoor

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

func pemOf(c *tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
}

func keyOf(t *testing.T, c *tls.Certificate) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(c.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// Through twenty-five years: whoever got a kubeconfig within the last one gets in and believes what the front door shows; a restart
// changes nothing.
func TestCertificatesAreRenewedBeforeTheyEnd(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	hosts := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	dir := t.TempDir()
	a, err := loadAuthority(dir, hosts, clock)
	if err != nil {
		t.Fatal(err)
	}
	type given struct {
		cert *x509.Certificate
		pool *x509.CertPool
		at   time.Time
	}
	var all []given
	authorities := map[string]bool{}
	for month := range 300 {
		if month%7 == 0 {
			if a, err = loadAuthority(dir, hosts, clock); err != nil {
				t.Fatal(err)
			}
		}
		cert, _, believed, err := a.admit(User{"alice", 1000})
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(cert)
		leaf, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(believed)
		all = append(all, given{leaf, pool, now})
		authorities[leaf.Issuer.CommonName] = true
		shown, err := a.show(nil)
		if err != nil {
			t.Fatal(err)
		}
		if left := shown.Leaf.NotAfter.Sub(now); left < serverHolds/3 {
			t.Fatalf("month %d: what is shown ends in %s", month, left)
		}
		for _, g := range all {
			who, err := a.who([]*x509.Certificate{g.cert})
			if old := now.Sub(g.at) > userHolds; old != (err != nil) || !old && who != (User{"alice", 1000}) {
				t.Fatalf("month %d: a certificate of %s: %v %v", month, now.Sub(g.at), who, err)
			} else if old {
				continue
			}
			if _, err := shown.Leaf.Verify(x509.VerifyOptions{Roots: g.pool, CurrentTime: now, DNSName: "127.0.0.1"}); err != nil {
				t.Fatalf("month %d: a kubeconfig of %s does not believe what is shown: %v", month, now.Sub(g.at), err)
			}
		}
		if len(a.signer) > 2 {
			t.Fatalf("month %d: %d authorities", month, len(a.signer))
		}
		now = now.Add(30 * 24 * time.Hour)
	}
	if len(authorities) < 3 {
		t.Errorf("%d authorities in 25 years", len(authorities))
	}
}

func TestKeysThatAreDamagedOrOpenAreNotReplaced(t *testing.T) {
	for name, spoil := range map[string]func(file string) error{
		"others may read it": func(file string) error { return os.Chmod(file, 0o640) },
		"damaged":            func(file string) error { return os.WriteFile(file, []byte("-----BEGIN"), 0o600) },
		"without a key": func(file string) error {
			b, err := os.ReadFile(file)
			text, _, _ := strings.Cut(string(b), "-----BEGIN EC")
			return errors.Join(err, os.WriteFile(file, []byte(text), 0o600))
		},
	} {
		dir := t.TempDir()
		if _, err := loadAuthority(dir, nil, time.Now); err != nil {
			t.Fatal(err)
		}
		if err := spoil(dir + "/authority.pem"); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(dir + "/authority.pem")
		if _, err := loadAuthority(dir, nil, time.Now); err == nil || !strings.Contains(err.Error(), "kith kubeconfig") {
			t.Errorf("%s: %v", name, err)
		}
		if after, _ := os.ReadFile(dir + "/authority.pem"); string(after) != string(before) {
			t.Errorf("%s: replaced", name)
		}
	}
}
