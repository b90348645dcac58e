package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Listener is a copy of the socket that the process listens with at a TCP address, so that it stays open when the process ends
// (pidfd_getfd(2), Linux 5.6).
func (p *Process) Listener(address string) (*net.TCPListener, error) {
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		if to, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(p.PID), "fd", f.Name())); err != nil || !strings.HasPrefix(to, "socket:") {
			continue
		}
		own, err := unix.PidfdGetfd(p.fd, fd, 0)
		if errors.Is(err, unix.EBADF) {
			continue // closed just now
		} else if err != nil {
			return nil, fmt.Errorf("copy a socket of process %d: %w", p.PID, err)
		}
		if l := listening(own, address); l != nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("process %d does not listen at %s", p.PID, address)
}

// listening takes over a socket; nil if it does not listen at the address.
func listening(fd int, address string) *net.TCPListener {
	file := os.NewFile(uintptr(fd), "")
	defer file.Close()
	if is, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || is == 0 {
		return nil
	}
	l, err := net.FileListener(file) // of a copy
	if err != nil {
		return nil
	}
	if tcp, is := l.(*net.TCPListener); is && l.Addr().String() == address {
		return tcp
	}
	l.Close()
	return nil
}
