//go:build !linux

package cluster

import "golang.org/x/sys/unix"

// hangUp is the event of a connection that was closed at both ends.
const hangUp = unix.POLLHUP
