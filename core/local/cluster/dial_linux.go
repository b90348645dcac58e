package cluster

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// silent is TCP_USER_TIMEOUT: how long sent data may stay unacknowledged before the connection is closed. The kernel's default is 15
// minutes, and client-go's health check takes 30 seconds to notice; meanwhile all requests of an HTTP/2 connection wait for
// retransmissions that come ever later, even when the API server is long back.
const silent = 10 * time.Second

// dial makes connections to API servers that may be away and come back, for rest.Config.Dial.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: silent, Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silent.Milliseconds()))
		}); err != nil {
			return err
		}
		return failed
	}}
	return d.DialContext(ctx, network, address)
}
