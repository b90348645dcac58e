package discovery

import (
	"crypto/ed25519"
	"crypto/sha256"
	"testing"

	"kith.dev/core/trust/identity"
)

func testID(name string) identity.ID {
	seed := sha256.Sum256([]byte(name))
	return identity.IDOf(ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
