package canonical

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gowebpki/jcs"

	"kith.dev/core/trust/identity"
	"kith.dev/core/trust/wire"
)

// Document says itself what in it cannot be meant.
type Document interface{ Validate() error }

// Signed is a document and the Ed25519 signature (RFC 8032) of its author.
type Signed struct {
	Document  []byte `json:"document"`
	Signature []byte `json:"signature"`
}

// Write gives the one form of a document, of at most so many bytes, after Validate.
func Write(d Document, most int) ([]byte, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	out, err := jcs.Transform(plain)
	if err == nil && len(out) > most {
		err = fmt.Errorf("has %d bytes, at most %d are allowed", len(out), most)
	}
	return out, err
}

// Read takes exactly the bytes that Write gives for the same content. The shape, which is the type's, bounds what decoding costs.
func Read[T Document](doc []byte, shape *wire.Shape, most int) (d T, err error) {
	var none T
	if len(doc) > most {
		return none, fmt.Errorf("has %d bytes, at most %d are allowed", len(doc), most)
	}
	if err := shape.Check(doc, wire.Bound{Factor: 12, Slack: 64 << 10}); err != nil {
		return none, err
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return none, errors.New("is not JSON of that form")
	}
	again, err := Write(d, most)
	if err != nil {
		return none, err
	}
	if !bytes.Equal(again, doc) { // other case, order or spelling, repeated members, anything behind
		return none, errors.New("is not written as canonical JSON (RFC 8785)")
	}
	return d, nil
}

// Sign signs what Write gave. The version of the document stands before it in what is signed, so that the signature is good for a document of that
// kind and nothing else.
func Sign(doc []byte, version string, who *identity.Identity) Signed {
	return Signed{Document: doc, Signature: who.Sign(message(version, doc))}
}

// Check checks that a cluster signed the document.
func (s Signed) Check(version string, key ed25519.PublicKey, id identity.ID) error {
	if len(s.Signature) != ed25519.SignatureSize {
		return fmt.Errorf("its signature has %d bytes, want %d", len(s.Signature), ed25519.SignatureSize)
	}
	return identity.Verify(key, id, message(version, s.Document), s.Signature)
}

func message(version string, doc []byte) []byte { return append([]byte(version+"\x00"), doc...) }
