package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Session is the one tray of a user on a Mac, by a lock on a file. EXPERIMENTAL: it never ran on one.
type Session struct{ lock *os.File }

// Bus is nothing: there is none on a Mac.
type Bus = struct{}

// Open opens the file that is locked. Close it.
func Open() (*Session, error) {
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "kith")
		err = os.MkdirAll(dir, 0o700)
	}
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(filepath.Join(dir, "tray.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("see whether a tray runs already: %w", err)
	}
	return &Session{f}, nil
}

// Bus is what a panel has to be given.
func (s *Session) Bus() Bus { return Bus{} }

// Close lets another one start.
func (s *Session) Close() { s.lock.Close() }

// Activated tells nothing: the first tray is not woken by a second one.
func (s *Session) Activated() <-chan struct{} { return nil }

// Claim makes this the one tray of the user. Where there is one, first is false.
func (s *Session) Claim(_ context.Context, log *slog.Logger) (first bool, err error) {
	err = unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		log.Info("a tray of this user runs already")
		return false, nil
	case err != nil:
		return false, fmt.Errorf("see whether a tray runs already: lock %s: %w", s.lock.Name(), err)
	}
	return true, nil
}
