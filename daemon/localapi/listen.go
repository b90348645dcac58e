package localapi

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kith.dev/core/api"
	"kith.dev/core/base/places"
)

// listener is the unix socket and the lock that says it is ours.
type listener struct {
	*net.UnixListener
	lock *os.File
}

// listen takes the socket at path. A lock beside it decides between two daemons that start at the same moment: with
// the lock held, a socket that nobody answers at is left over from a crash and can be removed. A daemon that holds
// no lock (another version, another name space for files) is still found by dialing.
func listen(path, group string, log *slog.Logger) (*listener, error) {
	failed := func(err error) (*listener, error) { return nil, fmt.Errorf("local API: listen at %s: %w", path, err) }
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return failed(err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return failed(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, occupied(path)
		}
		return failed(err)
	}
	if err := removeStale(path); err != nil {
		lock.Close()
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		lock.Close()
		return failed(err)
	}
	if err := permit(path, group, log); err != nil {
		l.Close()
		lock.Close()
		return failed(err)
	}
	return &listener{l, lock}, nil
}

// release gives the socket up. The lock file stays: removing it would let two daemons lock two files of one name.
func (l *listener) release() {
	l.UnixListener.Close()
	l.lock.Close()
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("local API: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return &api.Error{
			Code: api.CodeConflict, Message: "local API: cannot listen at " + path,
			Reason: "a file that is not a socket is there", Do: "move it away, or set another `socket`",
		}
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return occupied(path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("local API: is another kithd at %s? %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("local API: remove the socket a crashed kithd left: %w", err)
	}
	return nil
}

// occupied is the error when somebody listens at path; it says which process, when the kernel tells.
func occupied(path string) error {
	reason := "it serves the local API at " + path
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		if c, err := credentialsOf(conn.(*net.UnixConn)); err == nil && c.pid > 0 {
			reason = fmt.Sprintf("process %d serves the local API at %s", c.pid, path)
		}
		conn.Close()
	}
	return &api.Error{
		Code: api.CodeConflict, Message: "another kithd is running", Reason: reason,
		Do: "stop it (`" + places.Here().Stop + "`), or set another `socket`",
	}
}

// permit lets the group connect; without one, the owner alone. What they may do is decided per call, by who they are.
func permit(path, group string, log *slog.Logger) error {
	mode := fs.FileMode(0o600)
	if group != "" {
		mode = 0o660
		if g, err := user.LookupGroup(group); err != nil {
			log.Info("local API is for root only, because its group does not exist", "group", group)
		} else if gid, err := strconv.Atoi(g.Gid); err != nil {
			return err
		} else if err := os.Chown(path, -1, gid); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}
