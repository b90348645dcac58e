//go:build lab && soak

package e2e

import (
	"testing"

	"kith.dev/test/lab"
)

// TestABrokerOfTwo: pods go on to two providers, who do not know each other either.
func TestABrokerOfTwo(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 4})
	b := &brokered{alice: l.Laptop("alice"), bob: l.Laptop("bob"), providers: []*lab.Laptop{l.Laptop("carol"), l.Laptop("dave")}}
	b.settle(t)
	t.Run("pods go on, and are alice's", b.goOn)
	t.Run("each reaches each, and nobody else", b.reach)
	t.Run("a provider is gone", b.gone)
	t.Run("nothing is left", b.unpeer)
}
