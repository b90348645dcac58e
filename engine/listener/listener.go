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
	"strconv"
	"sync"
	"sync/atomic"
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
		one, err := inherited(netip.AddrPortFrom(addr, uint16(port)))
		if one == nil && err == nil {
			one, err = listenPatiently(ctx, netip.AddrPortFrom(addr, uint16(port)).String())
		}
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

// inheritedVariable names the descriptor of a socket that whoever started this program listens with already: programs that connected
// meanwhile wait in it. It is the same word in core/local/cluster.
const inheritedVariable = "KITH_API_LISTENER"

// handed is the inherited socket that nobody has taken yet; nil: there is none.
var handed atomic.Pointer[os.File]

// Inherit takes over the socket that this program inherited, if it did, for Listen. It must come before anything is started that would inherit
// it, too: containerd would hold the port when this program is long gone.
func Inherit() error {
	named, is := os.LookupEnv(inheritedVariable)
	if !is {
		return nil
	}
	fd, err := strconv.Atoi(named)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC)
	}
	if err != nil {
		return fmt.Errorf("descriptor %q, which %s names: %w", named, inheritedVariable, err)
	}
	handed.Store(os.NewFile(uintptr(fd), "the inherited socket"))
	return os.Unsetenv(inheritedVariable)
}

// inherited gives the listener that was inherited if it is for this address; nil if none is.
func inherited(at netip.AddrPort) (net.Listener, error) {
	file := handed.Load()
	if file == nil {
		return nil, nil
	}
	l, err := net.FileListener(file) // of a copy
	if err != nil {
		return nil, fmt.Errorf("the inherited socket: %w", err)
	}
	if l.Addr().String() != at.String() {
		return nil, l.Close()
	}
	handed.Store(nil)
	return l, file.Close()
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
