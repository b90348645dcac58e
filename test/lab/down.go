package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Down removes a lab with everything in it, disks included. It goes by what is there, cgroups and directories,
// not by what was remembered, so it also cleans up after a crash. A lab that is not there is no error.
func Down(ctx context.Context, name string) error {
	l, err := handle(name)
	if err != nil {
		return err
	}
	return l.Down(ctx)
}

// Down is the function of the same name for this lab.
func (l *Lab) Down(ctx context.Context) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	var g errgroup.Group
	g.SetLimit(16)
	for _, name := range l.traces() {
		p := l.Laptop(name)
		g.Go(func() error {
			if err := p.switchOff(ctx); err != nil {
				return fmt.Errorf("remove %s: %w", p.name, err)
			}
			return removeAll(p.disk)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := errors.Join(removeAll(l.disks), removeAll(l.state)); err != nil {
		return err
	}
	// The roots go with the last lab.
	for _, d := range []string{filepath.Dir(l.disks), filepath.Dir(l.state)} {
		if err := unix.Rmdir(d); err != nil && err != unix.ENOTEMPTY && err != unix.ENOENT {
			return fmt.Errorf("remove %s: %w", d, err)
		}
	}
	return nil
}

// removeAll is os.RemoveAll that never looks through a mount: there should be none below, and if one is, it is taken
// away, not emptied.
func removeAll(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m, err)
		}
	}
	return os.RemoveAll(dir)
}

func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	var below []string
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if m := strings.Fields(sc.Text()); len(m) > 4 && (m[4] == dir || strings.HasPrefix(m[4], dir+"/")) {
			below = append(below, m[4])
		}
	}
	return below, sc.Err()
}
