package wol

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// byDevice has a socket send by one device: two networks of this machine may have the same addresses, and the kernel would choose one of them. A kernel
// before 5.7 asks for a right that this process may lack, and chooses then.
func byDevice(name string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), name) })
		if err = errors.Join(failed, err); errors.Is(err, unix.EPERM) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("send by device %s: %w", name, err)
		}
		return nil
	}
}
