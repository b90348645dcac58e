package identity

import (
	"encoding/hex"
	"errors"
	"regexp"
	"testing"
)

func TestCodeIsPinned(t *testing.T) {
	// Two versions of Kith must show the same digits.
	a, b := ID{1}, ID{2}
	if got := Code(a, b, Nonce{3}, Nonce{4}); got != "401123" {
		t.Errorf("Code %s", got)
	}
	commitment := Commit(Nonce{3}, a, b)
	if got := hex.EncodeToString(commitment[:8]); got != "e0f108acfeb5624b" {
		t.Errorf("Commit %s", got)
	}
}

func TestCodeDependsOnEverything(t *testing.T) {
	a, b, na, nb := someID(0), someID(1), Nonce{1}, Nonce{2}
	code := Code(a, b, na, nb)
	if !regexp.MustCompile(`^[0-9]{6}$`).MatchString(code) {
		t.Fatalf("code %q", code)
	}
	for name, other := range map[string]string{
		"initiator":     Code(someID(2), b, na, nb),
		"responder":     Code(a, someID(2), na, nb),
		"its nonce":     Code(a, b, Nonce{9}, nb),
		"other nonce":   Code(a, b, na, Nonce{9}),
		"roles swapped": Code(b, a, nb, na),
	} {
		if other == code {
			t.Errorf("%s changes nothing", name)
		}
	}
}

func TestCodesAreEvenlySpread(t *testing.T) {
	const n = 20000
	var first, last [10]int
	alice, bob := someID(0), someID(1)
	for range n {
		code := Code(alice, bob, NewNonce(), NewNonce())
		first[code[0]-'0']++
		last[code[5]-'0']++
	}
	// Each count is near 2000 with a standard deviation of 42; six of them is one run in 10^8.
	for d := range 10 {
		for _, count := range []int{first[d], last[d]} {
			if count < n/10-255 || count > n/10+255 {
				t.Errorf("digit %d occurs %d times in %d", d, count, n)
			}
		}
	}
}

func TestCommitmentBinds(t *testing.T) {
	a, b, nonce := someID(0), someID(1), NewNonce()
	commitment := Commit(nonce, a, b)
	if err := VerifyCommit(commitment, nonce, a, b); err != nil {
		t.Error(err)
	}
	other := nonce
	other[31] ^= 1
	for name, err := range map[string]error{
		"another nonce":     VerifyCommit(commitment, other, a, b),
		"another initiator": VerifyCommit(commitment, nonce, someID(2), b),
		"another responder": VerifyCommit(commitment, nonce, a, someID(2)),
		"roles swapped":     VerifyCommit(commitment, nonce, b, a),
	} {
		if !errors.Is(err, ErrCommitment) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Mallory stands between alice and bob with a key of his own, and passes on all else unchanged.
func TestARelayWithItsOwnKeyShowsTwoCodes(t *testing.T) {
	alice, bob, mallory := load(t), load(t), load(t)
	toMallory, aliceSees, _, err := handshake(t, mallory.ServerTLS(), alice.ClientTLS(ID{}))
	must(t, err)
	bobSees, _, _, err := handshake(t, bob.ServerTLS(), mallory.ClientTLS(bob.ID()))
	must(t, err)
	seenByAlice, _, err := PeerOf(aliceSees)
	must(t, err)
	seenByBob, _, err := PeerOf(bobSees)
	must(t, err)
	if id, _, err := PeerOf(toMallory); err != nil || id != alice.ID() {
		t.Fatalf("mallory sees %s, %v", id, err)
	}

	nonceA, nonceB := NewNonce(), NewNonce()
	commitment := Commit(nonceB, seenByBob, bob.ID())
	if err := VerifyCommit(commitment, nonceB, alice.ID(), seenByAlice); !errors.Is(err, ErrCommitment) {
		t.Errorf("alice takes a commitment made for mallory: %v", err)
	}
	atAlice := Code(alice.ID(), seenByAlice, nonceA, nonceB)
	atBob := Code(seenByBob, bob.ID(), nonceA, nonceB)
	if atAlice == atBob {
		t.Errorf("both see %s", atAlice) // by chance once in a million runs
	}
}
