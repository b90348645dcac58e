package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"kith.dev/core/base/durable"
)

// record is what a pid file holds.
type record struct {
	PID         int    `json:"pid"`
	Born        string `json:"born"`        // see birth
	Fingerprint string `json:"fingerprint"` // of what was started, as the starter calls it
}

// ErrEnded is what Hold says of a process that has ended already.
var ErrEnded = errors.New("it ended at once")

// Hold keeps a child that was just started, and notes it in a pid file, with a fingerprint of what was started. Without the
// file nobody could find it later on, so it is killed if that cannot be written.
func Hold(child *exec.Cmd, file, fingerprint string) (*Process, error) {
	go child.Wait() // reaps it while it is our child; its end is seen through the pidfd
	pid := child.Process.Pid
	born, err := birth(pid)
	if err != nil {
		return nil, ErrEnded
	}
	p, err := open(pid, born)
	if err != nil {
		return nil, ErrEnded
	}
	text, err := json.Marshal(record{pid, born, fingerprint})
	if err == nil {
		err = durable.WriteFile(file, text, 0o600)
	}
	if err != nil {
		_ = child.Process.Kill()
		p.Close()
		return nil, err
	}
	return p, nil
}

// Find gives the running process of a pid file with the fingerprint it was started with, or nil if there is none.
func Find(file string) (p *Process, fingerprint string) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, ""
	}
	var r record
	if json.Unmarshal(b, &r) != nil {
		// containerd's was three words once, and a containerd that is not found would run beside the next one.
		if _, err := fmt.Sscan(string(b), &r.PID, &r.Born, &r.Fingerprint); err != nil {
			return nil, ""
		}
	}
	if p, err = open(r.PID, r.Born); err != nil {
		return nil, ""
	}
	return p, r.Fingerprint
}

// Lock takes the lock of a file, which it makes, until that is closed; the error wraps unix.EWOULDBLOCK while another process
// has it.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// OpenLog opens a log for a program that appends to it: a file, never a pipe of ours, for it must outlive us.
func OpenLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// TrimLog bounds the log of a running program, so that it cannot fill the disk: of one with limit bytes or more, what is in it
// moves to one older file. Who writes it appends, and so goes on at the new end.
func TrimLog(path string, limit int64) error {
	src, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	if st, err := src.Stat(); err != nil || st.Size() < limit {
		return err
	}
	dst, err := os.OpenFile(path+".1", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if err := errors.Join(err, dst.Close()); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}
