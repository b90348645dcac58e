package lab

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock keeps others from changing the lab at the same time, other processes and other goroutines alike. The lock is
// on the state directory itself, so that it leaves no file, and ends with its process.
func (l *Lab) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		if err := os.MkdirAll(l.state, 0o755); err != nil {
			return nil, fmt.Errorf("lock lab %s: %w", l.name, err)
		}
		f, err := os.Open(l.state)
		if err != nil {
			return nil, fmt.Errorf("lock lab %s: %w", l.name, err)
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			// The directory may have been removed by the Down we waited for.
			held, err1 := f.Stat()
			there, err2 := os.Stat(l.state)
			if err1 == nil && err2 == nil && os.SameFile(held, there) {
				return func() { f.Close() }, nil
			}
		}
		f.Close()
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lab %s is being changed by another kith-lab: %w", l.name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
