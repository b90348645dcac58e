//go:build !linux

package overlay

import (
	"context"

	"kith.dev/core/net/hostnet"
)

// Listen waits for the end: only Linux has nodes with a way to others.
func (*Ways) Listen(ctx context.Context, _ *hostnet.Changes, _ func()) error {
	<-ctx.Done()
	return nil
}
