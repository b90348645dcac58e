//go:build lab && soak

package e2e

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// TestAThousandNamespacesComeAndGo is what a run of upstream's conformance tests does, and continuous integration: a namespace for
// each test. KITH_CHURN names another number.
func TestAThousandNamespacesComeAndGo(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("KITH_CHURN"))
	if err != nil {
		n = 1000
	}
	w := newWorld(t)
	// What is made once is made now. The API server keeps the last few hundred changes of each kind, with the objects: 40 MB that are
	// there after a hundred namespaces and no more of them after four hundred.
	w.passing(100, 8)
	w.leavesNoTrace(t, 10*time.Minute, func() { w.passing(n, 8) })
	if why := w.well(); why != "" {
		t.Error(why)
	}
}
