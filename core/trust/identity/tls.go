package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// MismatchError says that a peer holds another key than the one expected: it was set up anew, an
// address now belongs to someone else, or someone stands in between.
type MismatchError struct{ Want, Got ID }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("peer has another key: want %s, got %s", e.Want, e.Got)
}

// selfSigned wraps the key's public half in the certificate TLS asks for. Only the key in it counts,
// so it says nothing else, and never ends (RFC 5280 section 4.1.2.5 gives that date for "no end"): a
// laptop with a wrong clock still has its peers. The same key gives the same bytes.
func selfSigned(key ed25519.PrivateKey) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "kith"},
		NotBefore:    time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Certificate is this cluster's self-signed certificate with its key.
func (i *Identity) Certificate() tls.Certificate { return i.cert }

// ServerTLS asks every client for a certificate of our kind and accepts any key: who may do what is
// the handler's decision, after PeerOf. In TLS 1.3 a client learns of a refused certificate only from
// its first read.
func (i *Identity) ServerTLS() *tls.Config {
	c := i.config(ID{})
	c.ClientAuth = tls.RequireAnyClientCert
	return c
}

// ClientTLS connects to the holder of the key of expect only, and otherwise fails with a
// *MismatchError. With the zero ID it accepts any key: for a first contact, whose ID PeerOf then tells.
func (i *Identity) ClientTLS(expect ID) *tls.Config {
	c := i.config(expect)
	// No authority and no host name is checked; VerifyConnection does all there is to check.
	c.InsecureSkipVerify = true
	return c
}

func (i *Identity) config(expect ID) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{i.cert},
		NextProtos:   []string{"h2", "http/1.1"},
		// Every connection proves its key afresh; nothing of an ended contract lives on in a ticket.
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			got, _, err := PeerOf(state)
			if err != nil {
				return err
			}
			if !expect.IsZero() && got != expect {
				return &MismatchError{Want: expect, Got: got}
			}
			return nil
		},
	}
}

// PeerOf tells who is at the other end of a connection made with ServerTLS or ClientTLS. That the
// other end holds the key is proven by the handshake; without a completed one there is an error.
func PeerOf(state tls.ConnectionState) (ID, ed25519.PublicKey, error) {
	if n := len(state.PeerCertificates); n != 1 {
		return ID{}, nil, fmt.Errorf("peer certificate: want exactly one, got %d", n)
	}
	cert := state.PeerCertificates[0]
	pub, ok := cert.PublicKey.(ed25519.PublicKey)
	if !ok {
		return ID{}, nil, fmt.Errorf("peer certificate: holds a %s key, want Ed25519", cert.PublicKeyAlgorithm)
	}
	if !bytes.Equal(cert.RawIssuer, cert.RawSubject) {
		return ID{}, nil, errors.New("peer certificate: issued by another, want a self-signed one")
	}
	if err := cert.CheckSignature(cert.SignatureAlgorithm, cert.RawTBSCertificate, cert.Signature); err != nil {
		return ID{}, nil, fmt.Errorf("peer certificate: not signed by its own key: %w", err)
	}
	return IDOf(pub), pub, nil
}
