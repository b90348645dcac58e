package web

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// owner asks the kernel whose the socket at the other end of a loopback connection is. Source: sock_diag(7), inet_diag_req_v2 and inet_diag_msg.
//
// It has to be connected still, and a process's: one that was closed has no owner any more, and the kernel would say root.
func owner(conn net.Conn) (uid int, err error) {
	failed := func(err error) (int, error) {
		return 0, fmt.Errorf("ask for the owner of %s: %w", conn.RemoteAddr(), err)
	}
	theirs, ok := conn.RemoteAddr().(*net.TCPAddr)
	ours, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 || theirs.IP.To4() == nil || ours.IP.To4() == nil {
		return failed(errors.New("not IPv4"))
	}
	const (
		byFamily    = 20 // SOCK_DIAG_BY_FAMILY
		established = 1  // TCP_ESTABLISHED
	)
	ask := make([]byte, 56)
	ask[0], ask[1] = unix.AF_INET, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(ask[4:], 1<<established)
	binary.BigEndian.PutUint16(ask[8:], uint16(theirs.Port))
	binary.BigEndian.PutUint16(ask[10:], uint16(ours.Port))
	copy(ask[12:], theirs.IP.To4())
	copy(ask[28:], ours.IP.To4())
	binary.NativeEndian.PutUint64(ask[48:], ^uint64(0)) // no cookie
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	answers, err := c.Execute(netlink.Message{Header: netlink.Header{Type: byFamily, Flags: netlink.Request}, Data: ask})
	if err != nil {
		return failed(err)
	}
	for _, a := range answers {
		if a.Header.Type != byFamily || len(a.Data) < 72 {
			continue
		}
		if state, inode := a.Data[1], binary.NativeEndian.Uint32(a.Data[68:]); state != established || inode == 0 {
			return failed(errors.New("it is closed"))
		}
		return int(binary.NativeEndian.Uint32(a.Data[64:])), nil
	}
	return failed(errors.New("no answer"))
}
