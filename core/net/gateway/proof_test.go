package gateway

import (
	"bytes"
	"testing"
)

func TestProofNeedsOneOfTheTwoKeys(t *testing.T) {
	var keys [3]PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = GenerateKey(); err != nil {
			t.Fatal(err)
		}
	}
	alice, bob, mallory := &Gateway{cfg: Config{PrivateKey: keys[0]}, key: keys[0].Public()}, &Gateway{cfg: Config{PrivateKey: keys[1]}, key: keys[1].Public()}, &Gateway{cfg: Config{PrivateKey: keys[2]}, key: keys[2].Public()}
	said := []byte("bob to alice")
	proof, err := bob.Prove(alice.PublicKey(), said)
	if err != nil || len(proof) != ProofSize {
		t.Fatal(proof, err)
	}
	if !alice.Proven(bob.PublicKey(), said, proof) {
		t.Error("alice does not take bob's proof")
	}
	forged, err := mallory.Prove(alice.PublicKey(), said)
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]bool{
		"made by mallory":                alice.Proven(bob.PublicKey(), said, forged),
		"shown as mallory's":             alice.Proven(mallory.PublicKey(), said, proof),
		"shown to mallory":               mallory.Proven(bob.PublicKey(), said, proof),
		"of another statement":           alice.Proven(bob.PublicKey(), []byte("alice to bob"), proof),
		"cut short":                      alice.Proven(bob.PublicKey(), said, proof[:ProofSize-1]),
		"of nothing":                     alice.Proven(bob.PublicKey(), said, nil),
		"of our own key":                 alice.Proven(alice.PublicKey(), said, proof),
		"of a key everybody's secret":    alice.Proven(Key{1}, said, proof),
		"of a key that is no key":        alice.Proven(Key{}, said, make([]byte, ProofSize)),
		"alice's own, for what is bob's": alice.Proven(bob.PublicKey(), said, must1(alice.Prove(mallory.PublicKey(), said))),
	} {
		if got {
			t.Errorf("a proof %s was taken", what)
		}
	}
	// The points of low order (RFC 7748, section 7): the shared secret would be zero whatever the other half is.
	for _, low := range []Key{{}, {1}} {
		if p, err := alice.Prove(low, said); err == nil {
			t.Errorf("proved %x to %x", p, low)
		}
	}
	if bytes.Contains(proof, keys[1].bytes[:8]) {
		t.Error("the proof holds the private key")
	}
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
