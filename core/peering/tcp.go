package peering

import (
	"net"
	"time"
)

// A peer that went away without a word is noticed within 5 + 3·3 = 14 s: by the kernel's keepalive when nothing
// is under way, by unacknowledged (TCP_USER_TIMEOUT, Linux) when something is; keepalives do not count then.
// No timer of ours ticks. On connections with beats (see vigil) keepalives are never due.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 3 * time.Second, Count: 3}

const unacknowledged = 14 * time.Second

// tune sets both. A connection that was taken over for an upgrade may stand still as long as its reader wants
// (a paused terminal), which user timeout would take for death: there patient is true.
func tune(conn net.Conn, patient bool) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	tcp.SetKeepAliveConfig(keepAlive)
	limit := unacknowledged
	if patient {
		limit = 0
	}
	setUserTimeout(tcp, limit)
}
