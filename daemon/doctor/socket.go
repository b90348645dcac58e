package doctor

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"kith.dev/core/api"
)

const restart = "systemctl restart kithd"

// socket looks whether those who may call kithd can: its socket must be the group's.
func (m Machine) socket(_ context.Context, report func(api.Finding)) {
	if m.PID == 0 || m.Socket == "" || m.SocketGroup == "" {
		return // nobody listens, or it is root's alone, as configured
	}
	in := about{area: api.AreaDaemon}
	const name = "socket"
	info, err := os.Lstat(m.Socket)
	if err != nil {
		report(in.fail(name, "the socket of kithd, "+m.Socket+", is not there", err.Error(), "restart it: "+restart))
		return
	}
	if info.Mode().Type() != os.ModeSocket {
		report(in.fail(name, m.Socket+" is not the socket of kithd: something else was put there", "nobody who looks for kithd there finds it", "move it away, and restart kithd: "+restart))
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
	if plain(m.Socket) && plain(m.SocketGroup) && ok && ours(owner) && onlyOurs(filepath.Dir(m.Socket)) {
		f.Fix = commands
	}
	report(f)
}

func ours(owner *syscall.Stat_t) bool { return owner.Uid == 0 || int(owner.Uid) == os.Geteuid() }

// onlyOurs reports whether nobody but root, and who runs this, can put something else in the place of what is theirs in a folder, or of the
// folder: else a command that names a file there would do what it does to a file of somebody else's choice.
func onlyOurs(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			return false
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		const byOthers = 0o022
		if !ok || !ours(owner) || info.Mode().Perm()&byOthers != 0 && info.Mode()&os.ModeSticky == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
