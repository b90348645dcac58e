package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"kith.dev/engine/guests"
)

// A volume that is a folder has no moment of its own. So the pods that have it stand still while the last of what they wrote is copied: their cgroups
// are frozen, and no process of them sees more of it than that time went by.

// stills holds pods still. A file notes which, before they are: whoever dies meanwhile lets them go when it starts again.
type stills struct {
	all  string // the folder of all cgroups
	pods string // that of those of the owner's pods, beside which guests' is: with cgroup v2, or the freezer's of v1
	v1   bool
	note string // path of the file
}

const cgroups = "/sys/fs/cgroup"

// noteIn is the file, in the folder of snapshots, that notes which pods stand still.
func noteIn(snapshots string) string { return filepath.Join(snapshots, "still") }

// LetGo has the pods go on that stood still for a copy when this program was killed. Call it before anything that may wait, or fail: they wait for it.
func LetGo(snapshots, cgroupRoot string, log *slog.Logger) {
	if err := stillsOf(cgroupRoot, noteIn(snapshots)).letGo(); err != nil {
		log.Warn("pods that stood still for a copy may do so until their volumes are copied again", "err", err)
	}
}

// stillsOf finds how pods are held still, below the cgroup that the kubelet was given.
func stillsOf(root, note string) stills {
	s := stills{all: cgroups, pods: filepath.Join(cgroups, root, "kubepods"), note: note}
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err != nil {
		s.pods, s.v1 = filepath.Join(cgroups, "freezer", root, "kubepods"), true
	}
	return s
}

// stopsWithin bounds how long the kernel may take until a pod stands still: a process may wait for a disk.
const stopsWithin = 3 * time.Second

// errStarted: a pod began to use the volume while it was copied.
var errStarted = errors.New("a pod that has it started while it was copied; it is copied again")

// group is the cgroup of a pod; "" while it has no process.
func (s stills) group(pod types.UID) string {
	in := []string{filepath.Join(filepath.Dir(s.pods), guests.Cgroup)}
	for _, class := range []string{"", "burstable", "besteffort"} { // Kubernetes' QoS classes
		in = append(in, filepath.Join(s.pods, class))
	}
	for _, dir := range in {
		path := filepath.Join(dir, "pod"+string(pod))
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return path
		}
	}
	return ""
}

// hold has pods stand still until release is called, which may be called twice. Those without a process are left out; held are the others.
func (s stills) hold(ctx context.Context, pods []types.UID) (held map[types.UID]bool, release func() error, err error) {
	held = map[types.UID]bool{}
	var groups []string
	for _, pod := range pods {
		if g := s.group(pod); g != "" {
			held[pod] = true
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return held, func() error { return nil }, nil
	}
	if err := s.letGo(); err != nil { // whom it could not have go on before: no other note takes the place of that
		return nil, nil, err
	}
	if err := s.write(groups); err != nil {
		return nil, nil, fmt.Errorf("note which pods stand still: %w", err)
	}
	for _, g := range groups {
		if err = s.set(g, true); err == nil {
			err = s.await(ctx, g)
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("hold %s still: %w", filepath.Base(g), err), s.letGo())
		}
	}
	return held, sync.OnceValue(s.letGo), nil
}

// letGo has the pods go on that the note names; none without one.
func (s stills) letGo() error {
	text, err := os.ReadFile(s.note)
	if err != nil {
		return gone(err)
	}
	var errs []error
	for group := range strings.Lines(string(text)) {
		group = strings.TrimSpace(group)
		if below, is := strings.CutPrefix(group, s.all+"/"); is && filepath.IsLocal(below) { // the kubelet may have another cgroup by now
			errs = append(errs, gone(s.set(group, false))) // gone: it was deleted meanwhile
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("have pods go on that stood still: %w", err)
	}
	return gone(os.Remove(s.note))
}

func (s stills) write(groups []string) error {
	file, err := os.OpenFile(s.note, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(strings.Join(groups, "\n") + "\n") // no need of the disk: what that would survive, the pods do not
	return errors.Join(err, file.Close())
}

func (s stills) set(group string, still bool) error {
	file, word := "cgroup.freeze", map[bool]string{true: "1", false: "0"}[still]
	if s.v1 {
		file, word = "freezer.state", map[bool]string{true: "FROZEN", false: "THAWED"}[still]
	}
	f, err := os.OpenFile(filepath.Join(group, file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(word)
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, unix.ENODEV) { // it went between the two
		return os.ErrNotExist
	}
	return err
}

// await waits until all processes of a cgroup stand still. Nothing tells of that with v1.
func (s stills) await(ctx context.Context, group string) error {
	file, word := "cgroup.events", "frozen 1"
	if s.v1 {
		file, word = "freezer.state", "FROZEN"
	}
	err := wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, stopsWithin, true, func(context.Context) (bool, error) {
		text, err := os.ReadFile(filepath.Join(group, file))
		return strings.Contains(string(text), word), gone(err)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("not within %s", stopsWithin)
	}
	return err
}
