//go:build !linux

package cluster

import (
	"context"
	"net"
)

// dial is the default: no pods run on these systems.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}
