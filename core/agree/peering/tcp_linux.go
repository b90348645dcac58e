package peering

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long sent data may stay unacknowledged (tcp(7), RFC 5482); zero is the kernel's default.
func setUserTimeout(conn *net.TCPConn, limit time.Duration) {
	if raw, err := conn.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit/time.Millisecond))
		})
	}
}

// inFlightOn reports whether the peer's kernel has not acknowledged yet all that was sent; false when that is not known.
func inFlightOn(conn *net.TCPConn) (is bool) {
	if raw, err := conn.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			is = err == nil && (info.Unacked > 0 || info.Notsent_bytes > 0)
		})
	}
	return is
}

// roundTrip is the kernel's smoothed round-trip time of the connection; zero when not known.
func roundTrip(conn *net.TCPConn) time.Duration {
	var rtt time.Duration
	if raw, err := conn.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				rtt = time.Duration(info.Rtt) * time.Microsecond
			}
		})
	}
	return rtt
}
