// Package lab makes a LAN of laptops on one Linux machine, for newcomers to play with, for the end-to-end tests and for
// the benchmarks. Each laptop has its own network, mount, PID, UTS, IPC and cgroup namespaces, its own disk, and runs
// the real kithd, the real engine and real containers. The LAN is a bridge in a network namespace of the lab's own; links
// can be cut, slowed and healed, laptops frozen, killed, booted and moved.
//
// Its callers are cmd/kith-lab, a thin command line over this package, and the tests in test/e2e and test/bench.
//
// What exists is read from the kernel: every process of a lab is in a cgroup named kith-lab.<lab>.<laptop>, and nothing
// of it is mounted outside its laptops. So Down works after any crash. The package must never touch the machine's
// own network namespace or mounts; the only settings of the machine it changes are limits that it raises (up.go).
// It needs root.
package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kith.dev/test/lab/cgroups"
	"kith.dev/test/lab/pid1"
)

// DefaultName is the lab's name unless told otherwise.
const DefaultName = "kith"

// Lab is a handle to one lab, any number of which may exist for the same lab. It holds nothing but the processes that answer kubectl's
// commands, which end with their laptop or with this process.
type Lab struct {
	name        string
	state       string // /run/kith-lab/<lab>
	disks       string // /var/lib/kith-lab/<lab>
	bin         string
	family      Family
	hierarchies []cgroups.Hierarchy
	kubectls    kubectls
}

// places are the roots of run-time state and of disks. KITH_LAB_DIR moves both below one directory.
func places() (state, disks string) {
	if d := os.Getenv("KITH_LAB_DIR"); d != "" {
		return filepath.Join(d, "run"), filepath.Join(d, "disk")
	}
	return "/run/kith-lab", "/var/lib/kith-lab"
}

func handle(name string) (*Lab, error) {
	if name == "" {
		name = DefaultName
	}
	if err := checkLabName(name); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a lab needs root, for its namespaces: try again with sudo")
	}
	hs, err := cgroups.Hierarchies()
	if err != nil {
		return nil, err
	}
	state, disks := places()
	return &Lab{name: name, state: filepath.Join(state, name), disks: filepath.Join(disks, name), hierarchies: hs}, nil
}

// settings are what all laptops of a lab share, kept in lab.json.
type settings struct {
	Bin string `json:"bin"`
	LAN Family `json:"lan,omitempty"`
}

// Open is a handle to a lab that is up.
func Open(name string) (*Lab, error) {
	l, err := handle(name)
	if err != nil {
		return nil, err
	}
	var s settings
	err = readJSON(filepath.Join(l.state, "lab.json"), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no lab %q: make it with kith-lab up", l.name)
	}
	if err != nil {
		return nil, err
	}
	l.bin, l.family = s.Bin, s.LAN
	return l, nil
}

// Labs lists the names of all labs that left any trace: a state directory, a disk or a cgroup.
func Labs() ([]string, error) {
	hs, err := cgroups.Hierarchies()
	if err != nil {
		return nil, err
	}
	groups, err := cgroups.Find(hs, "kith-lab.")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, g := range groups {
		names = append(names, strings.Split(g, ".")[1])
	}
	state, disks := places()
	for _, d := range []string{state, disks} {
		names = append(names, subdirectories(d)...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Name is the lab's name.
func (l *Lab) Name() string { return l.name }

// Bin is the directory of the binaries the laptops run.
func (l *Lab) Bin() string { return l.bin }

// Laptop is a handle to the named laptop, which need not exist: its methods then say so. "lan" is the LAN itself,
// where only Exec and Run work.
func (l *Lab) Laptop(name string) *Laptop {
	return &Laptop{
		lab: l, name: name, state: filepath.Join(l.state, name), disk: filepath.Join(l.disks, name),
		group: cgroups.Group{Name: l.groupPrefix() + name, Hierarchies: l.hierarchies},
	}
}

// Laptops lists the laptops of the lab, powered or not, in the order of their making; then the nodes of clusters.
func (l *Lab) Laptops() []*Laptop {
	names := slices.DeleteFunc(l.traces(), func(n string) bool { return indexOf(n) == 0 && !isNode(n) })
	place := func(name string) int {
		if isNode(name) {
			return Most + 1
		}
		return indexOf(name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b)) })
	all := make([]*Laptop, 0, len(names))
	for _, n := range names {
		all = append(all, l.Laptop(n))
	}
	return all
}

func (l *Lab) groupPrefix() string { return "kith-lab." + l.name + "." }

// traces lists everything that may be a laptop of this lab, the LAN included.
func (l *Lab) traces() []string {
	names := append(subdirectories(l.state), subdirectories(l.disks)...)
	groups, _ := cgroups.Find(l.hierarchies, l.groupPrefix())
	for _, g := range groups {
		names = append(names, strings.TrimPrefix(g, l.groupPrefix()))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func subdirectories(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func (p *Laptop) spec() pid1.Spec {
	return pid1.Spec{Lab: p.lab.name, Name: p.name, State: p.state, Cgroup: p.group}
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
