package datastore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// reserveMax bounds the reserve. A minute of a busy cluster's writes is a few megabytes.
	reserveMax = 64 << 20
	// reserveShare of the disk is what a reserve takes at most: given up, it must leave the disk so full that the
	// kubelet still sees the pressure (see its eviction thresholds) and makes room.
	reserveShare = 100
	// restoreEvery is how often a reserve that was given up is tried to be taken again.
	restoreEvery = 30 * time.Second
)

// full are SQLite's own words (sqlite3_errstr) for SQLITE_FULL, and for SQLITE_IOERR, which is what a full disk is where
// it cannot map or sync a file. kine links one of two drivers, whose error types have nothing else in common.
var full = []string{"database or disk is full", "disk I/O error"}

// reserve is room on the datastore's disk that is kept for the moment when there is none left. A cluster that cannot
// write cannot even say that its disk is full, nor evict what fills it.
type reserve struct {
	file string
	log  *slog.Logger

	mu      sync.Mutex
	held    bool
	givenUp chan struct{} // one token
}

func newReserve(dir string, log *slog.Logger) *reserve {
	r := &reserve{file: filepath.Join(dir, "reserve"), log: log, givenUp: make(chan struct{}, 1)}
	_, err := os.Stat(r.file)
	r.held = err == nil
	return r
}

// take allocates the reserve unless it is held already. A disk that is nearly full, or a file system that cannot
// allocate, is no error: there is no reserve then.
func (r *reserve) take() (held bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	dir := filepath.Dir(r.file)
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return r.held, fmt.Errorf("size of the disk with %s: %w", dir, err)
	}
	size := min(reserveMax, int64(disk.Blocks)*disk.Bsize/reserveShare)
	switch {
	case r.held:
		return true, r.shrink(size)
	case int64(disk.Bavail)*disk.Bsize < 4*size:
		return false, nil
	}
	f, err := os.OpenFile(r.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	err = errors.Join(err, f.Close())
	if err != nil {
		err = errors.Join(fmt.Errorf("allocate %s: %w", r.file, err), os.Remove(r.file))
		if errors.Is(err, unix.ENOSPC) { // somebody was faster
			return false, nil
		}
		return false, err
	}
	r.held = true
	return true, nil
}

// shrink cuts a reserve that was made on a larger disk than it is on now.
func (r *reserve) shrink(size int64) error {
	info, err := os.Stat(r.file)
	if err != nil || info.Size() <= size {
		return err
	}
	return os.Truncate(r.file, size)
}

// giveUp frees the reserve when err says that the disk is full, and tells whether there was one.
func (r *reserve) giveUp(err error) bool {
	if err == nil || !slices.ContainsFunc(full, func(s string) bool { return strings.Contains(err.Error(), s) }) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		return false
	}
	if err := os.Remove(r.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Error("the disk is full, and what was kept for that cannot be given up", "file", r.file, "err", err)
		return false
	}
	r.held = false
	r.log.Warn("the disk is full: room that was kept for this is used now, so that the cluster can go on; make room", "file", r.file)
	select {
	case r.givenUp <- struct{}{}:
	default:
	}
	return true
}

// spend does what writes, and does it again with the room of the reserve if the disk is full.
func (r *reserve) spend(write func() error) error {
	err := write()
	if r.giveUp(err) {
		err = write()
	}
	return err
}

// run takes the reserve again after it was given up, as soon as there is room, until ctx ends.
func (r *reserve) run(ctx context.Context) {
	for {
		held, err := r.take()
		if err != nil {
			r.log.Warn("no room is kept for a full disk", "err", err)
		}
		var again <-chan time.Time
		if !held && err == nil {
			again = time.After(restoreEvery)
		}
		select {
		case <-again:
		case <-r.givenUp:
		case <-ctx.Done():
			return
		}
	}
}
