//go:build lab && soak

package e2e

import (
	"testing"

	"kith.dev/test/lab"
)

// TestNoStartOfAnEngineLogsAnError: of a laptop that is new, and of one that was switched off.
func TestNoStartOfAnEngineLogsAnError(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob)
	if err := bob.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := bob.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	startsLogNoError(t, l)
}
