package mdns

import (
	"crypto/ed25519"
	"crypto/sha256"
	"testing"

	"kith.dev/core/find/discovery"
	"kith.dev/core/trust/identity"
)

func testID(name string) identity.ID {
	seed := sha256.Sum256([]byte(name))
	return identity.IDOf(ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
}

// txtOf is the TXT record of a cluster of this version.
func txtOf(id identity.ID, name string) discovery.TXT {
	return discovery.TXT{ID: id, Name: name}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
