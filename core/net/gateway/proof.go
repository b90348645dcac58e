package gateway

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
)

// proofDomain keeps what is derived here apart from all that WireGuard derives from the same two keys.
const proofDomain = "kith: a statement between the holders of two WireGuard keys, v1"

// ProofSize is the length of a proof in bytes.
const ProofSize = sha256.Size

// Prove shows the holder of theirs that whoever says statement holds the private half of this gateway's key. WireGuard's
// keys cannot sign; but the secret that two of them share (X25519, RFC 7748) can be computed with one of the two private
// halves only, and a MAC under it (HMAC-SHA256 with a key of HKDF, RFC 2104 and 5869) is as good between the two. Both
// would compute the same: the statement must say who says it to whom.
func (g *Gateway) Prove(theirs Key, statement []byte) ([]byte, error) {
	return g.cfg.PrivateKey.prove(theirs, statement)
}

// Proven reports whether proof is that of theirs for the statement.
func (g *Gateway) Proven(theirs Key, statement, proof []byte) bool {
	want, err := g.Prove(theirs, statement)
	return err == nil && hmac.Equal(want, proof)
}

func (k PrivateKey) prove(theirs Key, statement []byte) ([]byte, error) {
	if theirs == k.Public() {
		return nil, errors.New("WireGuard key: it is our own")
	}
	own, err := ecdh.X25519().NewPrivateKey(k.bytes[:])
	if err != nil {
		return nil, errors.New("WireGuard private key: cannot be used") // nothing of it in an error
	}
	other, err := ecdh.X25519().NewPublicKey(theirs[:])
	if err != nil {
		return nil, fmt.Errorf("WireGuard key: %w", err)
	}
	shared, err := own.ECDH(other)
	if err != nil { // a point of low order: anybody knows the secret
		return nil, errors.New("WireGuard key: nobody can hold the private half of it")
	}
	key, err := hkdf.Key(sha256.New, shared, nil, proofDomain, sha256.Size)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(statement)
	return mac.Sum(nil), nil
}
