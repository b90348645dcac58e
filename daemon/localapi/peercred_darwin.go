package localapi

import "golang.org/x/sys/unix"

// credentialsAt asks the kernel who is at the other end of a socket. Source: unix(4) of macOS, LOCAL_PEERCRED, LOCAL_PEERPID.
func credentialsAt(fd int) (credentials, error) {
	x, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return credentials{}, err
	}
	pid, err := unix.GetsockoptInt(fd, unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	return credentials{pid: pid, uid: int(x.Uid), gid: int(x.Groups[0])}, err
}
