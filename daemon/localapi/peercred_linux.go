package localapi

import "golang.org/x/sys/unix"

// credentialsAt asks the kernel who is at the other end of a socket. Source: unix(7), SO_PEERCRED.
func credentialsAt(fd int) (credentials, error) {
	u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return credentials{}, err
	}
	return credentials{pid: int(u.Pid), uid: int(u.Uid), gid: int(u.Gid)}, nil
}
