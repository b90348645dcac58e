//go:build linux

package fence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is the shortest time between two looks, so that a burst of events costs two.
	settle = 20 * time.Millisecond
	// again is when to look again after a look that failed.
	again = time.Second
)

// watch has look called now, and after every change of links, routes and nftables, until ctx ends.
func watch(ctx context.Context, look func() error) error {
	events := make(chan struct{}, 1)
	failed := make(chan error, 2)
	for _, s := range []struct {
		what     string
		protocol int
		groups   []int
	}{
		{"links and routes", unix.NETLINK_ROUTE, []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_ROUTE}},
		{"nftables", unix.NETLINK_NETFILTER, []int{unix.NFNLGRP_NFTABLES}},
	} {
		socket, err := subscribe(s.protocol, s.groups)
		if err != nil {
			return fmt.Errorf("fence: watch %s: %w", s.what, err)
		}
		defer socket.Close()
		go func() { failed <- read(socket, events) }()
	}
	for {
		var retry <-chan time.Time
		if err := look(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			retry = time.After(again)
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return nil
		}
		select {
		case <-events:
		case <-retry:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

func subscribe(protocol int, groups []int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
			unix.Close(fd)
			return nil, err
		}
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// read says that something changed, not what: whoever listens looks at the whole.
func read(socket *os.File, events chan<- struct{}) error {
	buf := make([]byte, 64<<10)
	for {
		_, err := socket.Read(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // some were lost, which is news as well
			return fmt.Errorf("fence: netlink: %w", err)
		}
		select {
		case events <- struct{}{}:
		default:
		}
	}
}
