package frontdoor

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"kith.dev/core/base/durable"
)

// How long certificates hold. A kubeconfig carries its own for a year, as K3s's does: every tool reads it, also those in containers and
// on other desktops of this machine, for which a credential plugin is not there. That it may be so long is due to Config.Allowed, which is
// asked for each user again and again: a certificate says who somebody is, not that he may still come in.
const (
	authorityHolds = 10 * 365 * 24 * time.Hour
	userHolds      = 365 * 24 * time.Hour
	serverHolds    = 90 * 24 * time.Hour
	tellUser       = 30 * 24 * time.Hour // before the end, in each answer
	clockSkew      = time.Hour           // certificates hold this long already: the clock may be set back a little
)

// Group is that of all users of the front door, beside those that their cluster gives them.
const Group = "kith:users"

// uidOID is the attribute uid of RFC 4519, in which a user's certificate has the number of the user: names are given anew.
var uidOID = asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}

// User is a user of this machine.
type User struct {
	Name string
	UID  int
}

// authority makes the certificates of the front door. Its keys are in one file, 0600, the newest last. When the newest has two users'
// certificates' time left another is made; the former is good until it ends: it goes on signing what the front door shows of itself
// until no kubeconfig can be in use that has not heard of its successor. Safe for concurrent use.
type authority struct {
	file  string
	hosts []netip.Addr // that the front door is asked at
	now   func() time.Time

	mu     sync.Mutex
	signer []signer // oldest first, at least one
	server *tls.Certificate
}

// signer is a certificate and its key.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

const maxAuthorityFile = 64 << 10

// loadAuthority reads the keys in dir, or makes the first one. A file that others may read, or that is damaged, is an error and never
// replaced by itself: all kubeconfigs that were given would be void.
func loadAuthority(dir string, hosts []netip.Addr, now func() time.Time) (*authority, error) {
	a := &authority{file: filepath.Join(dir, "authority.pem"), hosts: hosts, now: now}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("front door: %w", err)
	}
	err := a.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("front door: %s: %w; if it is removed another is made, and `kith kubeconfig` has to be asked again", a.file, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a, a.renew()
}

func (a *authority) read() error {
	f, err := os.Open(a.file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat() // of the open file: it cannot be exchanged between the look and the reading
	if err != nil {
		return err
	}
	if perm := info.Mode().Perm(); !info.Mode().IsRegular() || perm&0o077 != 0 {
		return fmt.Errorf("others may read or write these private keys (mode %04o, want 0600)", perm)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAuthorityFile))
	if err != nil {
		return err
	}
	for len(bytes.TrimSpace(text)) > 0 {
		var cert, key *pem.Block
		cert, text = pem.Decode(text)
		key, text = pem.Decode(text)
		if cert == nil || key == nil {
			return errors.New("damaged: not pairs of a certificate and its key")
		}
		var s signer
		if s.cert, err = x509.ParseCertificate(cert.Bytes); err != nil {
			return fmt.Errorf("damaged: %w", err)
		}
		if s.key, err = x509.ParseECPrivateKey(key.Bytes); err != nil {
			return fmt.Errorf("damaged: %w", err)
		}
		if !s.key.PublicKey.Equal(s.cert.PublicKey) {
			return errors.New("damaged: a key is not that of its certificate")
		}
		a.signer = append(a.signer, s)
	}
	return nil
}

// renew drops what has ended, and makes another signer when the newest gets old. mu is held.
func (a *authority) renew() error {
	now := a.now()
	kept := slices.DeleteFunc(slices.Clone(a.signer), func(s signer) bool { return now.After(s.cert.NotAfter) })
	if len(kept) > 0 && kept[len(kept)-1].cert.NotAfter.Sub(now) > 2*userHolds {
		a.signer = kept
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		// The date keeps authorities apart for programs that find them by name.
		Subject:   pkix.Name{CommonName: "kith front door " + now.UTC().Format(time.DateOnly), Organization: []string{"kith"}},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityHolds),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := sign(template, &key.PublicKey, signer{template, key})
	if err != nil {
		return err
	}
	kept = append(kept, signer{cert, key})
	if err := writeSigners(a.file, kept); err != nil {
		return fmt.Errorf("front door: keep its keys: %w", err)
	}
	a.signer = kept
	return nil
}

// writeSigners is atomic: a crash leaves the former file or the whole new one.
func writeSigners(path string, signers []signer) error {
	var text bytes.Buffer
	for _, s := range signers {
		der, err := x509.MarshalECPrivateKey(s.key)
		if err = errors.Join(err, pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw}),
			pem.Encode(&text, &pem.Block{Type: "EC PRIVATE KEY", Bytes: der})); err != nil {
			return err
		}
	}
	return durable.WriteFile(path, text.Bytes(), 0o600)
}

func sign(template *x509.Certificate, key *ecdsa.PublicKey, by signer) (*x509.Certificate, error) {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key, by.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// show is what the front door shows of itself; it is made anew when a third of its time is left. It is in memory alone.
func (a *authority) show(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.server != nil && a.server.Leaf.NotAfter.Sub(now) > serverHolds/3 && !now.Before(a.server.Leaf.NotBefore) {
		return a.server, nil
	}
	if err := a.renew(); err != nil {
		return nil, err
	}
	by := a.signer[slices.IndexFunc(a.signer, func(s signer) bool {
		return s.cert.NotAfter.Sub(now) > userHolds // kubeconfigs from before its successor have ended then
	})]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	var ips []net.IP
	for _, host := range a.hosts {
		ips = append(ips, host.AsSlice())
	}
	leaf, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "kith front door"}, DNSNames: []string{"localhost"}, IPAddresses: ips,
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(serverHolds),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, &key.PublicKey, by)
	if err != nil {
		return nil, err
	}
	a.server = &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
	return a.server, nil
}

// admit makes a certificate for a user: PEM of it, of its key, and of the authorities that the user has to believe.
func (a *authority) admit(user User) (cert, key, authorities []byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.renew(); err != nil {
		return nil, nil, nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	now := a.now()
	leaf, err := sign(&x509.Certificate{
		Subject: pkix.Name{
			CommonName: user.Name, Organization: []string{Group},
			ExtraNames: []pkix.AttributeTypeAndValue{{Type: uidOID, Value: strconv.Itoa(user.UID)}},
		},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(userHolds),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, &private.PublicKey, a.signer[len(a.signer)-1])
	if err != nil {
		return nil, nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, s := range a.signer {
		authorities = append(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})...)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), authorities, nil
}

// Why somebody is not let in, in words for him.
var (
	errNoCertificate = errors.New("the front door answers those alone who show a client certificate of its own: `kith kubeconfig` prints one")
	errForeign       = errors.New("this client certificate is not of this front door, which may have been set up anew: `kith kubeconfig` prints another")
)

// who tells whose certificate it is. That he holds the key, the handshake has shown.
func (a *authority) who(shown []*x509.Certificate) (User, error) {
	if len(shown) == 0 {
		return User{}, errNoCertificate
	}
	leaf := shown[0]
	roots := x509.NewCertPool()
	a.mu.Lock()
	for _, s := range a.signer {
		roots.AddCert(s.cert)
	}
	a.mu.Unlock()
	if now := a.now(); now.After(leaf.NotAfter) { // the sentence tells nothing that the certificate does not
		return User{}, ended(leaf)
	} else if _, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: now,
	}); err != nil {
		return User{}, errForeign
	}
	for _, name := range leaf.Subject.Names {
		text, _ := name.Value.(string)
		if uid, err := strconv.Atoi(text); name.Type.Equal(uidOID) && err == nil {
			return User{Name: leaf.Subject.CommonName, UID: uid}, nil
		}
	}
	return User{}, errForeign
}

func ended(leaf *x509.Certificate) error {
	return fmt.Errorf("this client certificate ended on %s: `kith kubeconfig` prints another", leaf.NotAfter.UTC().Format(time.DateOnly))
}
