// Package pki makes and renews the certificates of one cluster: two authorities, one leaf certificate for
// each component, and kubeconfigs that name them. The server calls Ensure at start and from time to time.
//
// Components are given file names, never bytes, and reload them, so a renewal needs no restart. The keys
// never leave the folder, which only root can read.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// LeafLife is how long a leaf certificate is valid.
	LeafLife = 365 * 24 * time.Hour
	// RenewBefore is how much of its life is left when a leaf is renewed. A laptop may sleep for weeks.
	RenewBefore = 90 * 24 * time.Hour

	authorityLife = 10 * 365 * 24 * time.Hour
	// backdate forgives clocks that jump back: laptops start with a wrong one now and then.
	backdate = 24 * time.Hour
)

// Leaf is a certificate wanted. Its files are Name.crt and Name.key.
type Leaf struct {
	Name       string
	Authority  string // name of the authority's files
	CommonName string
	Orgs       []string
	DNS        []string
	IPs        []netip.Addr
	Server     bool // for serving; otherwise for a client
}

func (l Leaf) usage() x509.ExtKeyUsage {
	if l.Server {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Ensure makes whatever is missing in dir, and makes anew every leaf that is about to end, is not what was
// asked for, or does not belong to its authority. It returns the names of the leaves made.
func Ensure(dir string, leaves []Leaf, now time.Time) (made []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of certificates: %w", err)
	}
	authorities := map[string]*authority{}
	for _, leaf := range leaves {
		ca := authorities[leaf.Authority]
		if ca == nil {
			if ca, err = ensureAuthority(dir, leaf.Authority, now); err != nil {
				return made, err
			}
			authorities[leaf.Authority] = ca
		}
		if current(dir, leaf, ca, now) {
			continue
		}
		if err := issue(dir, leaf, ca, now); err != nil {
			return made, fmt.Errorf("certificate %s: %w", leaf.Name, err)
		}
		made = append(made, leaf.Name)
	}
	return made, nil
}

// EnsureKey makes Name.key if it is missing: a key without a certificate, for signing service account tokens.
func EnsureKey(dir, name string) error {
	path := filepath.Join(dir, name+".key")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(path, key)
}

func ensureAuthority(dir, name string, now time.Time) (*authority, error) {
	cert, err := readCert(filepath.Join(dir, name+".crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return makeAuthority(dir, name, now)
	}
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	key, err := readKey(filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("authority %s: key and certificate in %s do not belong together; restore both from one backup", name, dir)
	}
	return &authority{cert, key}, nil
}

func makeAuthority(dir, name string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kith-" + name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	// The key first: a certificate without a key would be taken for a broken authority at the next start.
	if err := writeKey(filepath.Join(dir, name+".key"), key); err != nil {
		return nil, err
	}
	if err := writeCert(filepath.Join(dir, name+".crt"), der); err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

// current tells whether leaf's files hold what is wanted, for long enough.
func current(dir string, leaf Leaf, ca *authority, now time.Time) bool {
	cert, err := readCert(filepath.Join(dir, leaf.Name+".crt"))
	if err != nil {
		return false
	}
	key, err := readKey(filepath.Join(dir, leaf.Name+".key"))
	if err != nil || !key.PublicKey.Equal(cert.PublicKey) {
		return false
	}
	var ips []netip.Addr
	for _, ip := range cert.IPAddresses {
		addr, _ := netip.AddrFromSlice(ip)
		ips = append(ips, addr.Unmap())
	}
	return cert.CheckSignatureFrom(ca.cert) == nil &&
		!now.Before(cert.NotBefore) && now.Add(RenewBefore).Before(cert.NotAfter) &&
		cert.Subject.CommonName == leaf.CommonName && slices.Equal(cert.Subject.Organization, leaf.Orgs) &&
		slices.Equal(cert.DNSNames, leaf.DNS) && slices.Equal(ips, leaf.IPs) &&
		slices.Contains(cert.ExtKeyUsage, leaf.usage())
}

func issue(dir string, leaf Leaf, ca *authority, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	end := now.Add(LeafLife)
	if end.After(ca.cert.NotAfter) {
		end = ca.cert.NotAfter
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Orgs},
		NotBefore:             now.Add(-backdate),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{leaf.usage()},
		BasicConstraintsValid: true,
		DNSNames:              leaf.DNS,
	}
	for _, ip := range leaf.IPs {
		template.IPAddresses = append(template.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		return err
	}
	// Those who reload see both files a moment apart; they try again when key and certificate do not match.
	if err := writeKey(filepath.Join(dir, leaf.Name+".key"), key); err != nil {
		return err
	}
	return writeCert(filepath.Join(dir, leaf.Name+".crt"), der)
}
