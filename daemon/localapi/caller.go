package localapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"

	"kith.dev/core/api"
	"kith.dev/core/trust/audit"
)

// credentials are what the kernel says about the process at the other end of a connection, as of its connect.
type credentials struct {
	pid, uid, gid int
}

// caller is who made a connection. Credentials are read once, when it is accepted; whether they suffice is looked
// up once too, but in the first call, because a directory service may be slow and accepting must not wait for it.
type caller struct {
	credentials
	err     error // reading them failed
	once    sync.Once
	allowed bool
}

// RefusedUser is the reason of a refusal (audit.Refusal).
const RefusedUser audit.Reason = "user"

type callerKey struct{}

func withCaller(ctx context.Context, conn net.Conn) context.Context {
	c := new(caller)
	if u, ok := conn.(*net.UnixConn); ok {
		c.credentials, c.err = credentialsOf(u)
	} else {
		c.err = fmt.Errorf("%T is not a unix socket", conn)
	}
	return c.in(ctx)
}

func (c *caller) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// credentialsOf asks the kernel who is at the other end.
func credentialsOf(conn *net.UnixConn) (c credentials, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return c, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { c, failed = credentialsAt(int(fd)) })
	return c, errors.Join(err, failed)
}

// authorize lets root, the user kithd runs as and the group in, and tells everybody else whom to ask.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(callerKey{}).(*caller)
		c.once.Do(func() {
			if c.err == nil {
				c.allowed, c.err = s.member(c.credentials)
			}
			if !c.allowed {
				refused := refusal(c, s.Group)
				s.Audit.Note(audit.Refusal{Door: audit.Socket, Reason: RefusedUser, User: fmt.Sprintf("uid %d", c.uid), What: r.Method + " " + r.URL.Path, Why: refused.Message + ": " + refused.Reason})
			}
		})
		if !c.allowed {
			fail(w, refusal(c, s.Group))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refusal(c *caller, group string) *api.Error {
	if c.err != nil {
		return &api.Error{
			Code: api.CodeForbidden, Message: "you may not talk to kithd",
			Reason: fmt.Sprintf("who you are could not be found out: %v", c.err), Do: "try as root",
		}
	}
	name := strconv.Itoa(c.uid)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	if group == "" {
		return &api.Error{
			Code: api.CodeForbidden, Message: fmt.Sprintf("user %s may not talk to kithd", name),
			Reason: "it is for root and the user who started it", Do: "start a kithd of your own, or name its socket with --socket",
		}
	}
	return &api.Error{
		Code: api.CodeForbidden, Message: fmt.Sprintf("user %s may not talk to kithd", name),
		Reason: "it is for root and members of the group " + group,
		Do:     fmt.Sprintf("ask an administrator: usermod -aG %s %s; then log in again (the group is root's equal here)", group, name),
	}
}

// owns: root, or the user this process runs as.
func (c credentials) owns() bool { return c.uid == 0 || c.uid == os.Geteuid() }

// Member reports whether a user may call: root, the user this process runs as, or one that the system's directory lists in the group.
// Unlike who calls at the socket, it may be asked of somebody who is not there.
func Member(uid int, group string) (bool, error) {
	return memberOf(credentials{uid: uid, gid: -1}, group)
}

// memberOf says whether c may call: root, the user this process runs as, a process of the group, or a user that the
// system's directory lists in it.
func memberOf(c credentials, group string) (bool, error) {
	if c.owns() {
		return true, nil
	}
	if group == "" {
		return false, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return false, nil // no such group: nobody is in it
	}
	if strconv.Itoa(c.gid) == g.Gid {
		return true, nil
	}
	u, err := user.LookupId(strconv.Itoa(c.uid))
	if err != nil {
		return false, nil // not a user of the directory, so not a member
	}
	ids, err := u.GroupIds()
	if err != nil {
		return false, fmt.Errorf("groups of user %s: %w", u.Username, err)
	}
	return slices.Contains(ids, g.Gid), nil
}
