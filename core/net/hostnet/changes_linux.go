package hostnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Changes tells of changes at the host. The zero value is ready. It subscribes when the first listens, in the network namespace of
// that goroutine's thread, and holds nothing when nobody does.
type Changes struct {
	mu        sync.Mutex
	socket    *os.File
	listeners map[chan struct{}]Kinds
}

// Listen gives a channel that holds a token once something of these kinds may have changed since the last token was taken; it says
// that, not what. It is closed should the kernel tell nothing any more. Call stop in the end.
func (c *Changes) Listen(kinds Kinds) (changed <-chan struct{}, stop func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket == nil {
		c.socket, err = subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
			unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
		if err != nil {
			return nil, nil, fmt.Errorf("watch links and routes: %w", err)
		}
		c.listeners = map[chan struct{}]Kinds{}
		go c.read(c.socket)
	}
	one := make(chan struct{}, 1)
	c.listeners[one] = kinds
	return one, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.listeners, one); len(c.listeners) == 0 && c.socket != nil {
			c.socket.Close()
			c.socket = nil
		}
	}, nil
}

func (c *Changes) read(socket *os.File) {
	_ = read(socket, func(news []byte) { c.tell(kindsOf(news)) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket != socket { // nobody listened any more
		return
	}
	for one := range c.listeners {
		close(one)
	}
	socket.Close()
	c.socket, c.listeners = nil, nil
}

func (c *Changes) tell(kinds Kinds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one, wanted := range c.listeners {
		if wanted&kinds == 0 {
			continue
		}
		select {
		case one <- struct{}{}:
		default: // one is waiting already; it stands for both
		}
	}
}

// kindsOf says what netlink messages are about (rtnetlink(7)). Behind each header, all of these have the family first.
func kindsOf(news []byte) (kinds Kinds) {
	if len(news) == 0 {
		return All
	}
	for len(news) > unix.SizeofNlMsghdr {
		family := news[unix.SizeofNlMsghdr]
		switch binary.NativeEndian.Uint16(news[4:]) {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			kinds |= Links
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			kinds |= Addresses
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			if family == unix.AF_INET6 {
				kinds |= Routes6
			} else {
				kinds |= Routes
			}
		}
		length := (int(binary.NativeEndian.Uint32(news)) + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
		if length < unix.SizeofNlMsghdr || length > len(news) {
			break
		}
		news = news[length:]
	}
	return kinds
}

// Tables gives a channel like Listen's for nftables: it holds a token when a table may have changed about which what the kernel
// said (nfnetlink) matters; with nothing it is asked when some was lost, and that is news. Call stop in the end.
func Tables(matters func(news []byte) bool) (changed <-chan struct{}, stop func(), err error) {
	socket, err := subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return nil, nil, fmt.Errorf("watch nftables: %w", err)
	}
	one := make(chan struct{}, 1)
	go func() {
		defer close(one)
		_ = read(socket, func(news []byte) {
			if !matters(news) && len(news) > 0 {
				return
			}
			select {
			case one <- struct{}{}:
			default:
			}
		})
	}()
	return one, func() { socket.Close() }, nil
}

// subscribe opens a socket that hears of changes of the groups of a netlink protocol. Reads end when it is closed.
func subscribe(protocol int, groups ...int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, err
	}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err == nil {
		for _, g := range groups {
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g))
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// read calls heard with what comes, and with nothing when some was lost, which is news as well. It returns why it ended.
func read(socket *os.File, heard func(news []byte)) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := socket.Read(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return fmt.Errorf("netlink: %w", err)
		}
		heard(buf[:max(n, 0)])
	}
}
