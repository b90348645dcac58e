// Package cgroups gives each laptop of a lab one cgroup of its own, in every hierarchy the machine has: cgroup v1,
// v2, or both at once. test/lab makes, freezes, empties and removes them; test/lab/pid1 enters one and mounts it
// afresh as the laptop's /sys/fs/cgroup. It must never touch a cgroup whose name the caller did not give.
package cgroups

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Hierarchy is one mounted cgroup tree of the machine.
type Hierarchy struct {
	// Mount is where the machine mounts it, e.g. /sys/fs/cgroup/freezer.
	Mount string `json:"mount"`
	// V2 tells the unified hierarchy from those of version 1.
	V2 bool `json:"v2,omitempty"`
	// Options are the v1 mount options that choose the hierarchy, e.g. "cpu,cpuacct" or "none,name=systemd".
	Options string `json:"options,omitempty"`
}

// Has says whether a v1 hierarchy carries the controller.
func (h Hierarchy) Has(controller string) bool {
	return !h.V2 && slices.Contains(strings.Split(h.Options, ","), controller)
}

// Hierarchies lists what this machine mounts below /sys/fs/cgroup.
func Hierarchies() ([]Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list cgroup mounts: %w", err)
	}
	defer f.Close()
	hs, err := parse(f)
	if err == nil && len(hs) == 0 {
		err = fmt.Errorf("no cgroup hierarchy is mounted on this machine: mount cgroup2 on /sys/fs/cgroup first")
	}
	return hs, err
}

// parse reads the lines of proc_pid_mountinfo(5).
func parse(r io.Reader) ([]Hierarchy, error) {
	var hs []Hierarchy
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		h := Hierarchy{Mount: left[4]}
		if h.Mount != "/sys/fs/cgroup" && !strings.HasPrefix(h.Mount, "/sys/fs/cgroup/") {
			continue
		}
		switch right[0] {
		case "cgroup2":
			h.V2 = true
		case "cgroup":
			h.Options = v1Options(right[2])
		default:
			continue
		}
		if !slices.ContainsFunc(hs, func(o Hierarchy) bool { return o.Mount == h.Mount }) {
			hs = append(hs, h)
		}
	}
	return hs, sc.Err()
}

// v1Options keeps of the super block's options those that name controllers; a named hierarchy without any needs "none".
func v1Options(super string) string {
	var keep []string
	named := false
	for o := range strings.SplitSeq(super, ",") {
		switch {
		case o == "rw" || o == "ro" || o == "xattr" || o == "clone_children" || o == "noprefix" || strings.HasPrefix(o, "release_agent="):
		case strings.HasPrefix(o, "name="):
			named = true
			keep = append(keep, o)
		default:
			keep = append(keep, o)
		}
	}
	if named && len(keep) == 1 {
		keep = []string{"none", keep[0]}
	}
	return strings.Join(keep, ",")
}

// Group is one cgroup of the same name in all hierarchies.
type Group struct {
	Name        string
	Hierarchies []Hierarchy
}

// leaf holds the laptop's first processes in v2: a cgroup with children that have controllers may hold no process
// itself, and the kubelet wants to make such children.
const leaf = "init"

func (g Group) dirs() []string {
	dirs := make([]string, 0, len(g.Hierarchies))
	for _, h := range g.Hierarchies {
		dirs = append(dirs, filepath.Join(h.Mount, g.Name))
	}
	return dirs
}

// Make creates the group; one that exists already is taken over.
func (g Group) Make() error {
	for _, h := range g.Hierarchies {
		dir := filepath.Join(h.Mount, g.Name)
		if h.V2 {
			// Best effort: what the root does not hand down, the laptop does not have.
			enableAll(h.Mount)
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return fmt.Errorf("make cgroup %s: %w", dir, err)
		}
		if h.Has("cpuset") {
			// A new v1 cpuset is empty and takes no process before it has cpus and memory nodes.
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				if err := copyFile(filepath.Join(h.Mount, f), filepath.Join(dir, f)); err != nil {
					return fmt.Errorf("make cgroup %s: %w", dir, err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0o644); err != nil {
				return fmt.Errorf("make cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}

// Enter moves the calling process into the group. In v2 the process must call Settle after it has unshared its
// cgroup namespace.
func (g Group) Enter() error {
	for _, d := range g.dirs() {
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("enter cgroup %s: %w", d, err)
		}
	}
	return nil
}

// Settle steps down into the leaf of the v2 hierarchy and hands its controllers to the cgroups beside it. root is the
// laptop's own cgroup as seen from the caller.
func Settle(root string) error {
	d := filepath.Join(root, leaf)
	if err := os.Mkdir(d, 0o755); err != nil && !os.IsExist(err) {
		return fmt.Errorf("make cgroup %s: %w", d, err)
	}
	if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("enter cgroup %s: %w", d, err)
	}
	enableAll(root)
	return nil
}

func enableAll(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, c := range strings.Fields(string(b)) {
		// One by one: a single refused controller would refuse them all.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644)
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
