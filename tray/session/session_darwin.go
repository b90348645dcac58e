package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Session is the one tray of a user on a Mac, by a lock on a file; there is no bus to wake the first one by.
type Session struct{ lock *os.File }

// Open makes this the one tray of the user. Where there is one, the answer is nil. Close it.
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
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, fmt.Errorf("see whether a tray runs already: lock %s: %w", f.Name(), err)
	}
	return &Session{f}, nil
}

// Close lets another one start.
func (s *Session) Close() { s.lock.Close() }
