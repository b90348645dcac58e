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
	commitDomain = "kith pairing commitment v2\x00"
	codeDomain   = "kith pairing code v2\x00"
)

// ErrCommitment means that the responder revealed another nonce than the one it had committed to, or
// that the two sides see different keys: someone may stand in between. Pairing must end there.
var ErrCommitment = errors.New("pairing: the revealed nonce is not the one committed to; someone may stand in between")

// NewNonce draws a nonce.
func NewNonce() Nonce {
	var n Nonce
	rand.Read(n[:]) // never fails, crypto/rand ends the program instead
	return n
}

// Commit is what the responder b sends first: it fixes nonceB without showing it. The order, in which a is the asker, is
//
//	a → b  an opening
//	b → a  Commit(nonceB, a, b)
//	a → b  nonceA and the question     b shows the question with Code(a, b, nonceA, nonceB) to its owner
//	b → a  nonceB                      a: VerifyCommit, then a shows the same Code
//	the owners compare, b's accepts, a's confirms, and only then a signs
//
// as in the numeric comparison of Bluetooth Secure Simple Pairing (Core Specification, volume 2, part H, section 7.2.1), with
// the responder committing: whoever knows both nonces first is b, and b knows them only once the question is on its screen.
// Each side takes a and b from its own TLS connection, never from a message. A man in the middle, m, has two connections with
// his own key, hence two codes, Code(a, m, …) at alice and Code(m, b, …) at bob, and must make them equal.
//
// As the asker, towards bob. He sends nonceA before he learns bob's nonceB, of which he has a hash only (256 random bits, so
// it tells nothing). When he can compute the code, it is on bob's screen. An opening that he leaves without a nonce gives him
// nothing, bob draws a new nonceB for each. So each try at a code is a question before bob's owner, and core/agree/peering bounds
// how many of those all strangers together may put in a time.
//
// As the responder, towards alice. He commits to nonceB before alice sends nonceA, and so to the code before either of them can
// know it. He can compute it before she does, and then not reveal; but alice asks because her owner said so, tells him that
// the pairing was broken off, and never asks again by herself. So each try is an attempt that alice's owner made and saw
// fail.
//
// In both at once he is bound on one side when he learns the code of the other, whichever he finishes first. Every try
// succeeds once in a million, and none goes unseen.
func Commit(nonceB Nonce, a, b ID) [32]byte {
	return digest(commitDomain, a[:], b[:], nonceB[:])
}

// VerifyCommit checks at a that b revealed what it had committed to; else ErrCommitment.
func VerifyCommit(commitment [32]byte, nonceB Nonce, a, b ID) error {
	want := Commit(nonceB, a, b)
	if subtle.ConstantTimeCompare(want[:], commitment[:]) != 1 {
		return ErrCommitment
	}
	return nil
}

// Code is the six digits both owners compare; a is the asker. All million codes are equally likely.
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

// Spaced writes a code as it is shown: "069 210" is easier to read out than 069210. Anything else stays as it is.
func Spaced(code string) string {
	if len(code) != 6 {
		return code
	}
	return code[:3] + " " + code[3:]
}
