//go:build lab

package e2e

import (
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestPeersByAddressOverLinkLocal: nobody announces himself, so alice knows bob by the address that she types in, and he knows her by the
// one she came from.
func TestPeersByAddressOverLinkLocal(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, LAN: lab.LinkLocal, Config: map[string]any{"discovery": map[string]any{"lan": false}}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range l.Laptops() {
		eventually(t, 30*time.Second, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	at, err := bob.Address()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Kith(t.Context(), "peer", "add", at.WithZone("").String()); err == nil {
		t.Error("an address on no interface is taken")
	}
	if out := kith(t, alice, "peer", "add", at.String()); !strings.Contains(out, "found bob") {
		t.Errorf("kith peer add: %s", out)
	}
	befriend(t, alice, bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "5")
	reachedAt(t, alice, bob)
	reachedAt(t, bob, alice)
}
