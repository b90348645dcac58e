package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"math/big"
)

// Nonce is one side's share of a pairing code, used once.
type Nonce [32]byte

// The texts keep the two hashes apart from each other and from everything else that is hashed.
const (
	commitDomain = "kith pairing commitment v1\x00"
	codeDomain   = "kith pairing code v1\x00"
)

// ErrCommitment means that the initiator revealed another nonce than the one it had committed to, or
// that the two sides see different keys: someone may stand in between. Pairing must end there.
var ErrCommitment = errors.New("pairing: the revealed nonce is not the one committed to; someone may stand in between")

// NewNonce draws a nonce.
func NewNonce() Nonce {
	var n Nonce
	rand.Read(n[:]) // never fails, crypto/rand ends the program instead
	return n
}

// Commit is what the initiator a sends first: it fixes nonceA without showing it. The order is
//
//	a → b  Commit(nonceA, a, b)
//	b → a  nonceB
//	a → b  nonceA                 b: VerifyCommit
//	both show Code(a, b, nonceA, nonceB), the owners compare
//
// as in the numeric comparison of Bluetooth Secure Simple Pairing (Core Specification, volume 2, part H,
// section 7.2.1). Each side takes a and b from its own TLS connection, never from a message. A man in the
// middle has two connections with his own key, hence two codes, and since he is bound to his nonces
// before he knows the others', he can only hope for one in a million.
func Commit(nonceA Nonce, a, b ID) [32]byte {
	return digest(commitDomain, a[:], b[:], nonceA[:])
}

// VerifyCommit checks at b that a revealed what it had committed to; else ErrCommitment.
func VerifyCommit(commitment [32]byte, nonceA Nonce, a, b ID) error {
	want := Commit(nonceA, a, b)
	if subtle.ConstantTimeCompare(want[:], commitment[:]) != 1 {
		return ErrCommitment
	}
	return nil
}

// Code is the six digits both owners compare; a is the initiator. All million codes are equally likely.
func Code(a, b ID, nonceA, nonceB Nonce) string {
	sum := digest(codeDomain, a[:], b[:], nonceA[:], nonceB[:])
	// All 256 bits modulo a million: the bias is below 2^-236.
	n := new(big.Int).SetBytes(sum[:])
	return fmt.Sprintf("%06d", n.Mod(n, big.NewInt(1_000_000)))
}

// digest needs no lengths in between: every part has a fixed one.
func digest(domain string, parts ...[]byte) (sum [32]byte) {
	h := sha256.New()
	h.Write([]byte(domain))
	for _, p := range parts {
		h.Write(p)
	}
	h.Sum(sum[:0])
	return sum
}
