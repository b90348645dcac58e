package cluster

import "golang.org/x/sys/unix"

// hangUp is the event of a connection whose other end was closed, though there may be something to read.
const hangUp = unix.POLLRDHUP
