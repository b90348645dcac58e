package contract

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"kith.dev/core/trust/identity"
)

// ErrUnsigned means that a signature is not there (yet).
var ErrUnsigned = errors.New("is missing")

// Signed is a document, as Canonical wrote it, and the Ed25519 signatures (RFC 8032, 64 bytes) of it.
type Signed struct {
	Document          []byte `json:"document"`
	ConsumerSignature []byte `json:"consumerSignature,omitempty"`
	ProviderSignature []byte `json:"providerSignature,omitempty"`
}

// New writes the document down, not signed yet.
func New(d Document) (Signed, error) {
	doc, err := Canonical(d)
	return Signed{Document: doc}, err
}

// SignAs signs the document as one of its sides. It fails when who is not that side. Read what you sign:
// Parse gives it.
func (s *Signed) SignAs(role Role, who *identity.Identity) error {
	d, err := Parse(s.Document)
	if err != nil {
		return err
	}
	party, err := d.Party(role)
	if err != nil {
		return err
	}
	if party.ID != who.ID() {
		return fmt.Errorf("contract %s: sign as %s: the %s is %s, not this cluster", d.ID, role, role, party.ID)
	}
	sig := who.Sign(message(d, s.Document))
	if role == Consumer {
		s.ConsumerSignature = sig
	} else {
		s.ProviderSignature = sig
	}
	return nil
}

// VerifyAs checks the document and the signature of one side, as a provider does before it countersigns.
// The error names the side; it wraps ErrUnsigned when that signature is missing.
func (s Signed) VerifyAs(role Role) (Document, error) {
	d, err := Parse(s.Document)
	if err != nil {
		return Document{}, err
	}
	party, err := d.Party(role)
	if err != nil {
		return Document{}, err
	}
	sig := s.ConsumerSignature
	if role == Provider {
		sig = s.ProviderSignature
	}
	if len(sig) == 0 {
		return Document{}, fmt.Errorf("contract %s: the %s's signature %w", d.ID, role, ErrUnsigned)
	}
	if len(sig) != ed25519.SignatureSize {
		return Document{}, fmt.Errorf("contract %s: the %s's signature has %d bytes, want %d", d.ID, role, len(sig), ed25519.SignatureSize)
	}
	if err := identity.Verify(party.Key, party.ID, message(d, s.Document), sig); err != nil {
		return Document{}, fmt.Errorf("contract %s: the %s's signature is not of these bytes (document or signature was changed, or signed with another key): %w", d.ID, role, err)
	}
	return d, nil
}

// Verify checks the document and both signatures; the error joins what is wrong with each. That the contract
// is over is no error: ask Document.InForce.
func (s Signed) Verify() error {
	if _, err := Parse(s.Document); err != nil {
		return err
	}
	_, consumer := s.VerifyAs(Consumer)
	_, provider := s.VerifyAs(Provider)
	return errors.Join(consumer, provider)
}

// message is what is signed of a document. What it begins with has the signature be good for a contract of its version, and nothing else.
func message(d Document, document []byte) []byte {
	return append([]byte(d.Version+"\x00"), document...)
}
