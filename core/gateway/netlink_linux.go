package gateway

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// listenNetlink subscribes to changes of links, addresses and routes. Reads end when the file is closed.
func listenNetlink() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("gateway: watch the network: %w", err)
	}
	groups := uint32(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR |
		unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("gateway: watch the network: %w", err)
	}
	return os.NewFile(uintptr(fd), "rtnetlink"), nil
}

// readEvents says that something changed, not what: whoever listens looks at the whole. Ours are among them;
// looking again after those finds nothing to do.
func readEvents(socket *os.File, events chan<- struct{}) {
	buf := make([]byte, 64<<10)
	for {
		_, err := socket.Read(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // some were lost, which is news as well
			return
		}
		select {
		case events <- struct{}{}:
		default:
		}
	}
}

// paths describes how each peer's endpoint is reached now: interface, source address, next hop.
func (e *engine) paths() map[Key]string {
	out := map[Key]string{}
	for k, ep := range e.endpoints() {
		out[k] = "unreachable"
		if rs, err := netlink.RouteGet(ep.Addr().AsSlice()); err == nil && len(rs) > 0 {
			out[k] = fmt.Sprintf("%d %s %s", rs[0].LinkIndex, rs[0].Src, rs[0].Gw)
		}
	}
	return out
}
