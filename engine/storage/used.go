package storage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// mountTable tells what is mounted in the mount namespace of whoever opens it (proc_pid_mountinfo(5)).
const mountTable = "/proc/thread-self/mountinfo"

// usedPause is between attempts at a file system that is mounted in another namespace, whose changes nobody tells.
const usedPause = 5 * time.Second

// inUse reports whether what is mounted at path is mounted elsewhere, too, as for pods.
func inUse(path string) (bool, error) {
	device, err := deviceAt(path)
	if err != nil {
		return false, err
	}
	table, err := os.Open(mountTable)
	if err != nil {
		return false, err
	}
	defer table.Close()
	mounts, err := countMounts(table)
	return mounts[device] > 1, err
}

// deviceAt gives the device of the file system that path is in, as the mount table writes it.
func deviceAt(path string) (string, error) {
	var at unix.Stat_t
	if err := unix.Lstat(path, &at); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", unix.Major(at.Dev), unix.Minor(at.Dev)), nil
}

// countMounts counts in a mount table how often each device is mounted.
func countMounts(table io.Reader) (map[string]int, error) {
	count, lines := map[string]int{}, bufio.NewScanner(table)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 2 {
			count[f[2]]++
		}
	}
	return count, lines.Err()
}

// used are the claims whose file systems grow when nobody has them.
type used struct {
	lock     sync.Mutex
	waits    map[cache.ObjectName]string    // where the file system is mounted for no pod
	tried    map[cache.ObjectName]time.Time // when it was last tried
	watching bool
}

func newUsed() *used {
	return &used{waits: map[cache.ObjectName]string{}, tried: map[cache.ObjectName]time.Time{}}
}

// add notes that somebody has the file system of a claim.
func (u *used) add(claim cache.ObjectName, path string) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.waits[claim] = path
}

// forget drops what is known of a claim.
func (u *used) forget(claim cache.ObjectName) {
	u.lock.Lock()
	defer u.lock.Unlock()
	delete(u.waits, claim)
	delete(u.tried, claim)
}

// watch queues each claim that was added as soon as nobody has its file system: a pod that starts in another's place leaves no more than a moment.
// It ends with the last claim that waits.
func (u *used) watch(ctx context.Context, queue workqueue.TypedInterface[cache.ObjectName]) error {
	u.lock.Lock()
	defer u.lock.Unlock()
	if u.watching {
		return nil
	}
	table, err := os.Open(mountTable)
	if err != nil {
		return err
	}
	u.watching = true
	go func() {
		defer table.Close()
		u.look(ctx, table, queue)
	}()
	return nil
}

func (u *used) look(ctx context.Context, table *os.File, queue workqueue.TypedInterface[cache.ObjectName]) {
	change := []unix.PollFd{{Fd: int32(table.Fd()), Events: unix.POLLPRI}} // since it was opened, or asked last
	for ctx.Err() == nil && u.release(table, queue) {
		_, _ = unix.Poll(change, int(usedPause.Milliseconds()))
	}
}

// release queues the claims whose file systems nobody has, and reports whether others wait. What cannot be told is tried.
func (u *used) release(table io.ReadSeeker, queue workqueue.TypedInterface[cache.ObjectName]) bool {
	u.lock.Lock()
	defer u.lock.Unlock()
	var mounts map[string]int
	if _, err := table.Seek(0, io.SeekStart); err == nil {
		mounts, _ = countMounts(table)
	}
	now := time.Now()
	for claim, path := range u.waits {
		device, _ := deviceAt(path)
		if mounts[device] > 1 || now.Sub(u.tried[claim]) < usedPause {
			continue
		}
		u.tried[claim] = now
		delete(u.waits, claim)
		queue.Add(claim)
	}
	u.watching = len(u.waits) > 0
	return u.watching
}
