package web

import (
	"fmt"
	"net"

	"golang.org/x/net/netutil"

	"kith.dev/core/trust/audit"
)

// anybody is the owner of a connection where the system does not say whose it is.
const anybody = -1

// owned is a connection with the user at its other end.
type owned struct {
	net.Conn
	uid int
}

// admission gives the connections of those for whom something is open. Others are cut before a byte of theirs is read: they must not take
// what room there is.
type admission struct {
	net.Listener
	s *Server
}

func (s *Server) admitting(l net.Listener) net.Listener {
	return &admission{netutil.LimitListener(l, maxConns), s}
}

func (a *admission) Accept() (net.Conn, error) {
	for {
		conn, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := a.s.owner(conn)
		if err == nil && a.s.welcome(uid) {
			return &owned{conn, uid}, nil
		}
		conn.Close()
		refused := audit.Refusal{Door: audit.Page, Reason: RefusedUser, User: fmt.Sprintf("uid %d", uid), What: "a connection", Why: "the page was opened by another user"}
		if err != nil {
			refused.User, refused.Why = "unknown", "whose it is could not be found out: "+err.Error()
		}
		a.s.Audit.Note(refused)
	}
}
