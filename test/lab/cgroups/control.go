package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Find lists the names of all cgroups at the top of any hierarchy that begin with prefix.
func Find(hs []Hierarchy, prefix string) ([]string, error) {
	var names []string
	for _, h := range hs {
		entries, err := os.ReadDir(h.Mount)
		if err != nil {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Init is the host's number of the process that is PID 1 of the laptop in the group; 0 when there is none.
func (g Group) Init() int {
	for _, p := range g.own() {
		if ids := nspids(p); len(ids) == 2 && ids[1] == "1" {
			return p
		}
	}
	return 0
}

// Processes lists, by host number, the processes in the group and below that live in a PID namespace of their own.
// Those of the host's PID namespace are left out: they are starters (of an init, of an exec) on their way.
func (g Group) Processes() []int {
	var pids []int
	for _, d := range g.dirs() {
		_ = filepath.WalkDir(d, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				pids = append(pids, procs(p)...)
			}
			return nil
		})
	}
	slices.Sort(pids)
	pids = slices.Compact(pids)
	return slices.DeleteFunc(pids, func(p int) bool { return len(nspids(p)) < 2 })
}

// own lists the processes of the group itself and of its v2 leaf, without the containers' cgroups.
func (g Group) own() []int {
	var pids []int
	for _, d := range g.dirs() {
		pids = append(pids, procs(d)...)
		pids = append(pids, procs(filepath.Join(d, leaf))...)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

func procs(dir string) []int {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if p, err := strconv.Atoi(f); err == nil && p > 0 {
			pids = append(pids, p)
		}
	}
	return pids
}

// nspids is the process's number in each PID namespace it is in, the host's first.
func nspids(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	for l := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(l, "NSpid:"); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// JoinThread puts the calling thread, which must be locked, into the v1 cgroups, so that a child it forks is born
// there. For v2 it returns the directory to clone the child into, or "" without one.
func (g Group) JoinThread() (v2 string, err error) {
	for _, h := range g.Hierarchies {
		d := filepath.Join(h.Mount, g.Name)
		if h.V2 {
			v2 = d
			if _, err := os.Stat(filepath.Join(d, leaf)); err == nil {
				v2 = filepath.Join(d, leaf)
			}
			continue
		}
		tid := strconv.Itoa(unix.Gettid())
		if err := os.WriteFile(filepath.Join(d, "tasks"), []byte(tid), 0o644); err != nil {
			return "", fmt.Errorf("join cgroup %s: %w", d, err)
		}
	}
	return v2, nil
}

// freezer is the file to write to, and what to write for frozen and thawed. v1 comes first: in a mixed setup the
// containers, too, are in the v1 hierarchies for certain.
func (g Group) freezer() (file, frozen, thawed string, err error) {
	for _, h := range g.Hierarchies {
		if h.Has("freezer") {
			return filepath.Join(h.Mount, g.Name, "freezer.state"), "FROZEN", "THAWED", nil
		}
	}
	for _, h := range g.Hierarchies {
		if h.V2 {
			return filepath.Join(h.Mount, g.Name, "cgroup.freeze"), "1", "0", nil
		}
	}
	return "", "", "", errors.New("this machine has no cgroup freezer")
}

// Freeze stops every process of the group and returns when all stand still, or ctx ends.
func (g Group) Freeze(ctx context.Context) error { return g.setFrozen(ctx, true) }

// Thaw lets them run again.
func (g Group) Thaw(ctx context.Context) error { return g.setFrozen(ctx, false) }

func (g Group) setFrozen(ctx context.Context, freeze bool) error {
	file, frozen, thawed, err := g.freezer()
	if err != nil {
		return err
	}
	want := thawed
	if freeze {
		want = frozen
	}
	for {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			return fmt.Errorf("set %s to %s: %w", file, want, err)
		}
		if g.Frozen() == freeze {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("set %s to %s: %w", file, want, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Frozen says whether every process of the group stands still.
func (g Group) Frozen() bool {
	file, frozen, _, err := g.freezer()
	if err != nil {
		return false
	}
	if filepath.Base(file) == "cgroup.freeze" {
		b, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cgroup.events"))
		return strings.Contains(string(b), "frozen 1")
	}
	b, _ := os.ReadFile(file)
	return strings.TrimSpace(string(b)) == frozen
}

// Empty ends everything in the group at once, as a power loss does, and returns when nothing is left in it.
func (g Group) Empty(ctx context.Context) error {
	for {
		// First PID 1: the kernel then ends all of its namespace. The rest is for groups whose init is gone.
		if p := g.Init(); p != 0 {
			_ = unix.Kill(p, unix.SIGKILL)
		}
		pids := g.Processes()
		for _, p := range pids {
			_ = unix.Kill(p, unix.SIGKILL)
		}
		if len(pids) == 0 {
			return nil
		}
		if file, _, thawed, err := g.freezer(); err == nil {
			// What is frozen in v1 does not die before it is thawed.
			_ = os.WriteFile(file, []byte(thawed), 0o644)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("end all processes of %s: %d left, first %d: %w", g.Name, len(pids), pids[0], ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Remove deletes the group and what containers made below it. It must be empty; the kernel frees the last process
// only some time after it was seen dead, so removal is tried until ctx ends.
func (g Group) Remove(ctx context.Context) error {
	for {
		var last error
		for _, d := range g.dirs() {
			if err := removeTree(d); err != nil {
				last = err
			}
		}
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup: %w", last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
