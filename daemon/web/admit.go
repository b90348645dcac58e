package web

import (
	"fmt"
	"net"
	"time"

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

// tryTime bounds how long a connection to itself may take.
const tryTime = 5 * time.Second

// tried connects to l and asks whose that is: where the system does not say (a container or a kernel without sock_diag), every browser would be
// cut without a word.
func (s *Server) tried(l *net.TCPListener) error {
	here, err := net.DialTimeout("tcp4", l.Addr().String(), tryTime)
	if err != nil {
		return err
	}
	defer here.Close()
	l.SetDeadline(time.Now().Add(tryTime))
	defer l.SetDeadline(time.Time{})
	for {
		there, err := l.Accept()
		if err != nil {
			return err
		}
		if there.RemoteAddr().String() != here.LocalAddr().String() { // somebody who tries ports
			there.Close()
			continue
		}
		_, err = s.owner(there)
		there.Close()
		return err
	}
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
