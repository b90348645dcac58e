// Package ledgertest gives tests a ledger over a client that is never behind. It must never be used by what is not a test.
package ledgertest

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/agree/ledger"
)

// Over is a ledger that has what the client has, whoever wrote it.
func Over(t testing.TB, c client.Client) *ledger.Ledger {
	return ledger.Of(c, func() *ledger.Snapshot {
		s, err := ledger.Read(context.Background(), c)
		if err != nil {
			t.Errorf("the ledger: %v", err)
			return &ledger.Snapshot{}
		}
		return s
	})
}
