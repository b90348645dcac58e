package discovery

import (
	"crypto/ed25519"
	"crypto/sha256"
	"net/netip"
	"time"

	"kith.dev/core/trust/identity"
)

func testID(name string) identity.ID {
	seed := sha256.Sum256([]byte(name))
	return identity.IDOf(ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey))
}

func ports(s ...string) (out []netip.AddrPort) {
	for _, a := range s {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

func at(after time.Duration) time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(after) }
