package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a process that need not be our child, held by a pidfd so that its number cannot be reused under us.
type process struct {
	pid int
	fd  int
}

// record is what the pid file holds.
type record struct {
	PID         int    `json:"pid"`
	Born        string `json:"born"`        // see birth
	Fingerprint string `json:"fingerprint"` // of program and arguments
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

func openProcess(pid int, born string) (*process, error) {
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

// wait returns true when the process has ended, false when ctx has. It sleeps in poll(2) on the pidfd, which turns
// readable at the process's end, and on a pipe that ctx closes.
func (p *process) wait(ctx context.Context) bool {
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

// end asks the process to end, and kills it if it has not when patience is over.
func (p *process) end(ctx context.Context, patience context.Context) error {
	for _, step := range []struct {
		signal syscall.Signal
		until  context.Context
	}{{syscall.SIGTERM, patience}, {syscall.SIGKILL, ctx}} {
		if err := unix.PidfdSendSignal(p.fd, step.signal, nil, 0); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("end process %d: %w", p.pid, err)
		}
		if p.wait(step.until) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("process %d does not end", p.pid)
}

func (p *process) close() { unix.Close(p.fd) }

// readRecord returns the running process of the pid file, or nil if there is none.
func readRecord(path string) (*process, record) {
	var r record
	b, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(b, &r) != nil {
		return nil, record{}
	}
	p, err := openProcess(r.PID, r.Born)
	if err != nil {
		return nil, record{}
	}
	return p, r
}

// writeRecord replaces the pid file in one step.
func writeRecord(path string, r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// lockFile keeps two supervisors from looking after one engine.
func lockFile(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another kithd looks after the engine in %s; stop it first", filepath.Dir(path))
	}
	return f, nil
}
