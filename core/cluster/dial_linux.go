package cluster

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// silent is how long an API server may not acknowledge what it was sent. The kernel's own patience is 15 minutes, and client-go asks a connection
// that is silent after 30 seconds; meanwhile all requests of an HTTP/2 connection wait for packets that are sent again later and later, also when the
// API server is long back.
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
