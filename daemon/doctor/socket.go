package doctor

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"kith.dev/core/api"
)

// socket looks whether those who may call kithd can: its socket must be the group's.
func (m Machine) socket(_ context.Context, report func(api.Finding)) {
	if m.PID == 0 || m.Socket == "" || m.SocketGroup == "" {
		return // nobody listens, or it is root's alone, as configured
	}
	in := about{area: api.AreaDaemon}
	const name = "socket"
	info, err := os.Stat(m.Socket)
	if err != nil {
		report(in.fail(name, "the socket of kithd, "+m.Socket+", is not there", err.Error(), "restart it: systemctl restart kithd"))
		return
	}
	group, err := user.LookupGroup(m.SocketGroup)
	if err != nil {
		report(in.warn(name, "there is no group "+m.SocketGroup+": only root may talk to kithd", err.Error(),
			"groupadd --system "+m.SocketGroup+", add yourself to it, and restart kithd"))
		return
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	const needed = 0o060
	if ok && strconv.Itoa(int(owner.Gid)) == group.Gid && info.Mode().Perm()&needed == needed {
		report(in.ok(name, "%s belongs to the group %s", m.Socket, m.SocketGroup))
		return
	}
	what := fmt.Sprintf("the socket of kithd, %s, does not belong to the group %s", m.Socket, m.SocketGroup)
	if ok && strconv.Itoa(int(owner.Gid)) == group.Gid {
		what = fmt.Sprintf("the group %s may not use the socket of kithd, %s", m.SocketGroup, m.Socket)
	}
	commands := []string{"chgrp " + m.SocketGroup + " " + m.Socket, "chmod 660 " + m.Socket}
	f := in.fail(name, what, "its members cannot talk to kithd; another program changed it after kithd made it", strings.Join(commands, "; "))
	if plain(m.Socket) && plain(m.SocketGroup) {
		f.Fix = commands
	}
	report(f)
}
