// Package listener makes the sockets of the engine's servers: one listener out of several addresses, so that the API server can
// be reached on loopback and on the node's address, and on nothing else; and unix sockets that are root's alone.
package listener

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

type listeners struct {
	all    []net.Listener
	conns  chan net.Conn
	failed chan error
	closed chan struct{}
	once   sync.Once
}

// Listen listens on TCP port at every address. A port still held by a server that is just ending is waited for.
// The listener's own address is the first of them.
func Listen(ctx context.Context, port int, addrs ...netip.Addr) (net.Listener, error) {
	l := &listeners{conns: make(chan net.Conn), failed: make(chan error, len(addrs)), closed: make(chan struct{})}
	for _, addr := range addrs {
		one, err := listenPatiently(ctx, netip.AddrPortFrom(addr, uint16(port)).String())
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("listen on port %d: %w", port, err)
		}
		l.all = append(l.all, one)
	}
	for _, one := range l.all {
		go l.accept(one)
	}
	return l, nil
}

func listenPatiently(ctx context.Context, addr string) (l net.Listener, err error) {
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		return !errors.Is(err, syscall.EADDRINUSE), nil
	})
	return l, err
}

// Unix listens on a socket in the place of one that a killed server left. Root alone may connect: who speaks to such a server is
// asked by nobody who he is. Nobody connects before listen(2), so the mode is set in between.
func Unix(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if outer := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); outer != nil {
			return outer
		}
		return err
	}}
	return config.Listen(context.Background(), "unix", socket)
}

func (l *listeners) accept(one net.Listener) {
	for {
		c, err := one.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() {
				time.Sleep(10 * time.Millisecond) // out of file descriptors: it passes
				continue
			}
			l.failed <- err
			return
		}
		select {
		case l.conns <- c:
		case <-l.closed:
			c.Close()
			return
		}
	}
}

func (l *listeners) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listeners) Close() error {
	var errs []error
	l.once.Do(func() {
		close(l.closed)
		for _, one := range l.all {
			errs = append(errs, one.Close())
		}
	})
	return errors.Join(errs...)
}

func (l *listeners) Addr() net.Addr { return l.all[0].Addr() }
