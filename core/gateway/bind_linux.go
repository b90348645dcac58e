package gateway

import (
	"errors"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// bind is the UDP socket of the tunnel. The standard one hands the kernel many datagrams as one, which the kernel
// refuses when a single one exceeds the path's MTU; it fragments only those that come alone. So after such an
// error they are sent one by one, and the gateway is told to look at the path again and use smaller packets.
// Datagrams that had already left arrive twice; WireGuard's replay window drops the second.
type bind struct {
	conn.Bind
	tooBig chan<- struct{}
}

func (b *bind) Send(bufs [][]byte, to conn.Endpoint) error {
	err := b.Bind.Send(bufs, to)
	if err == nil || !(errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EINVAL)) || len(bufs) < 2 {
		return err
	}
	select {
	case b.tooBig <- struct{}{}:
	default:
	}
	for i := range bufs {
		if err := b.Bind.Send(bufs[i:i+1], to); err != nil {
			return err
		}
	}
	return nil
}
