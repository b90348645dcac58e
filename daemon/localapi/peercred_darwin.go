package localapi

import (
	"net"

	"golang.org/x/sys/unix"
)

// credentialsOf asks the kernel who is at the other end. Source: unix(4) of macOS, LOCAL_PEERCRED, LOCAL_PEERPID.
func credentialsOf(conn *net.UnixConn) (c credentials, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return c, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var x *unix.Xucred
		if x, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); failed != nil {
			return
		}
		c = credentials{uid: int(x.Uid), gid: int(x.Groups[0])}
		c.pid, failed = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err == nil {
		err = failed
	}
	return c, err
}
