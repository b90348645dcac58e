package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// process is a process that need not be our child, held by a pidfd so that its number cannot be reused
// under us.
type process struct {
	pid int
	fd  int
}

// birth is when a process started, in clock ticks since boot (proc(5), field 22 of stat): with it a pid from
// a file can be told from a later process with the same number.
func birth(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The second field is the program's name in parentheses, and may hold anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	if fields[0][0] == 'Z' {
		return "", errors.New("already ended")
	}
	return string(fields[19]), nil
}

func open(pid int, born string) (*process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if now, err := birth(pid); err != nil || now != born {
		unix.Close(fd)
		return nil, errors.New("another process has this pid now")
	}
	return &process{pid, fd}, nil
}

// wait returns true when the process has ended, false when ctx has.
func (p *process) wait(ctx context.Context) bool {
	defer p.close()
	return p.poll(ctx)
}

// poll sleeps in poll(2) on the pidfd, which turns readable at the process's end, and on a pipe that ctx closes.
func (p *process) poll(ctx context.Context) bool {
	r, w, err := os.Pipe()
	if err != nil {
		return false
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { w.Close() })
	defer func() {
		if stop() {
			w.Close()
		}
	}()
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}, {Fd: int32(r.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false
		}
		return fds[0].Revents != 0
	}
}

func (p *process) close() { unix.Close(p.fd) }
