package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a process that need not be our child, held by a pidfd so that its number cannot be reused under us.
type Process struct {
	PID int
	fd  int
}

// birth is when a process started, in clock ticks since boot (proc(5), field 22 of stat): it tells a process from a
// later one with the same number.
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

func open(pid int, born string) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if now, err := birth(pid); err != nil || now != born {
		unix.Close(fd)
		return nil, errors.New("another process has this pid now")
	}
	return &Process{pid, fd}, nil
}

// Wait returns true when the process has ended, false when ctx has. It sleeps in poll(2) on the pidfd, which turns
// readable at the process's end, and on a pipe that ctx closes.
func (p *Process) Wait(ctx context.Context) bool {
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
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && fds[0].Revents != 0
	}
}

// End asks the process to end, and kills it if it has not after so long.
func (p *Process) End(ctx context.Context, patience time.Duration) error {
	polite, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, step := range []struct {
		signal syscall.Signal
		until  context.Context
	}{{syscall.SIGTERM, polite}, {syscall.SIGKILL, ctx}} {
		if err := unix.PidfdSendSignal(p.fd, step.signal, nil, 0); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("end process %d: %w", p.PID, err)
		}
		if p.Wait(step.until) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("process %d does not end", p.PID)
}

// Close lets go of the process, which runs on.
func (p *Process) Close() { unix.Close(p.fd) }
