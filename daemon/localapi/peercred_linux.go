package localapi

import (
	"net"

	"golang.org/x/sys/unix"
)

// credentialsOf asks the kernel who is at the other end. Source: unix(7), SO_PEERCRED.
func credentialsOf(conn *net.UnixConn) (c credentials, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return c, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var u *unix.Ucred
		if u, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed == nil {
			c = credentials{pid: int(u.Pid), uid: int(u.Uid), gid: int(u.Gid)}
		}
	})
	if err == nil {
		err = failed
	}
	return c, err
}
