//go:build !linux

package cluster

import (
	"context"
	"net"
)

// dial has nothing to add where no pods run.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}
