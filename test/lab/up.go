package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"kith.dev/test/lab/cgroups"
)

// Options say what lab to make.
type Options struct {
	// Name of the lab; "kith" when empty. Labs of other names live beside it, each with a LAN of its own.
	Name string
	// Laptops is how many there shall be at least, 1 to Most; 2 when 0, unless others are named.
	Laptops int
	// LAN is which addresses there are on it; a LAN that is there stays as it is.
	LAN Family
	// Names are laptops that there shall be, such as carol, whether or not those before her are.
	Names []string
	// Clusters are clusters of several nodes on the same LAN.
	Clusters []Cluster
	// NoEngine makes laptops without Kubernetes, for discovery and pairing; fifty of them fit on a small machine.
	NoEngine bool
	// NoWait returns when the daemons are started.
	NoWait bool
	// Engines are the Kubernetes of laptops by name, where it is not Kith's own: K3s has kithd run kith-k8s in the place of K3s (kith.dev/engine/k3s),
	// or the real one where KITH_K3S names it.
	Engines map[string]string
	// Config holds further keys for the laptops' /etc/kith/config.yaml.
	Config map[string]any
	// Daemon is the command each laptop keeps running; kithd with its config file when nil.
	Daemon []string
	// Env is added to the daemon's environment, KEY=value.
	Env []string
	// Bin is the directory of Kith's binaries; see FindBin when empty.
	Bin string
	// Images are image archives for the engine to import at its first start.
	Images []string
	// Progress, when set, is told what is waited for, from several goroutines.
	Progress func(laptop, what string)

	hierarchies []cgroups.Hierarchy // fewer than the machine has, for tests
}

// Up makes a lab, or adds what is missing of it: laptops that are there keep the options they were made with, those
// that are off are booted. It returns when every laptop's node is Ready, unless told not to wait. On an error the Lab is
// returned, too, if any of it exists, for its logs; Down is the caller's to call in every case.
func Up(ctx context.Context, o Options) (*Lab, error) {
	l, err := handle(o.Name)
	if err != nil {
		return nil, err
	}
	if o.hierarchies != nil {
		l.hierarchies = o.hierarchies
	}
	if o.Laptops == 0 && len(o.Names) == 0 && len(o.Clusters) == 0 {
		o.Laptops = 2
	}
	for _, c := range o.Clusters {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	for _, name := range o.Names {
		if indexOf(name) == 0 {
			return nil, fmt.Errorf("laptop %q: there are %s, then laptop%02d to laptop%d", name, strings.Join(everyone, ", "), len(everyone)+1, Most)
		}
	}
	if o.Laptops < 0 || o.Laptops > Most {
		return nil, fmt.Errorf("%d laptops: a lab has 1 to %d", o.Laptops, Most)
	}
	if o.Progress == nil {
		o.Progress = func(string, string) {}
	}
	if l.bin, err = FindBin(o.Bin); err != nil {
		return nil, err
	}
	if len(o.Daemon) == 0 {
		o.Daemon = []string{filepath.Join(l.bin, "kithd"), "--config", "/etc/kith/config.yaml"}
	}
	if _, err := os.Stat(o.Daemon[0]); err != nil {
		return nil, fmt.Errorf("the laptops' daemon is missing (run make build): %w", err)
	}
	for i, tar := range o.Images {
		if o.Images[i], err = filepath.Abs(tar); err != nil {
			return nil, err
		}
	}
	if err := l.make(ctx, o); err != nil {
		return l, err
	}
	if err := l.makeAgents(ctx, o); err != nil {
		return l, err
	}
	if o.NoWait {
		return l, nil
	}
	return l, l.WaitReady(ctx, o.Progress)
}

// make makes and boots, under the lab's lock.
func (l *Lab) make(ctx context.Context, o Options) error {
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	raiseLimits()
	l.family = o.LAN
	if old, err := Open(l.name); err == nil && l.Laptop(lanName).booted() {
		l.family = old.family
	}
	if err := writeJSON(filepath.Join(l.state, "lab.json"), settings{Bin: l.bin, LAN: l.family}); err != nil {
		return fmt.Errorf("make lab: %w", err)
	}
	if err := l.ensureLAN(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(8)
	names := slices.Clone(o.Names)
	for i := 1; i <= o.Laptops; i++ {
		names = append(names, NameOf(i))
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		p := l.Laptop(name)
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return p.ensure(ctx, indexOf(name), o)
		})
	}
	g.Go(func() error { return l.makeServers(ctx, o) })
	if err := g.Wait(); err != nil {
		return err
	}
	return l.applyFilter()
}

// limits of the whole kernel that a machine with many laptops on it runs into. They are raised where they are lower,
// and stay so: lowering them again could hurt what was started since.
var limits = map[string]int{
	"fs/inotify/max_user_instances":     8192, // about 20 a laptop with an engine, and the usual limit is 128
	"fs/inotify/max_user_watches":       524288,
	"net/ipv4/neigh/default/gc_thresh2": 8192, // all namespaces share the table: 50 laptops make 2450 neighbours
	"net/ipv4/neigh/default/gc_thresh3": 16384,
}

// raiseLimits does what it can; a limit that cannot be raised shows as an error of the program that meets it.
func raiseLimits() {
	for name, least := range limits {
		path := "/proc/sys/" + name
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if have, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && have < least {
			_ = os.WriteFile(path, []byte(strconv.Itoa(least)), 0o644)
		}
	}
}

func (p *Laptop) ensure(ctx context.Context, i int, o Options) error {
	_, err := os.Stat(p.recordFile())
	fresh := errors.Is(err, os.ErrNotExist)
	if p.booted() {
		if fresh {
			return fmt.Errorf("processes of a laptop %s are left from a lab that is gone: kith-lab down", p.name)
		}
		return p.replug(p.group.Init())
	}
	if fresh {
		if err := p.installDisk(o); err != nil {
			return err
		}
		r := record{Index: i, Address: p.lab.family.address(firstHost(i)), Daemon: o.Daemon, Env: o.Env, Engine: !o.NoEngine}
		if err := writeJSON(p.recordFile(), r); err != nil {
			return fmt.Errorf("make %s: %w", p.name, err)
		}
	}
	o.Progress(p.name, "booting")
	if err := p.boot(ctx); err != nil {
		return err
	}
	o.Progress(p.name, "booted")
	return nil
}

// replug connects a running laptop again that lost its LAN, and does nothing to one that has it.
func (p *Laptop) replug(pid int) error {
	h, err := netlinkIn(pid)
	if err != nil {
		return err
	}
	defer h.Close()
	if _, err := h.LinkByName(device); err == nil {
		return nil
	}
	r, err := p.record()
	if err != nil {
		return err
	}
	return p.plug(pid, r)
}

// FindBin is the directory of Kith's binaries: the given one, or that of the running kith-lab, or $KITH_BIN, or bin/ of
// the source tree the working directory is in.
func FindBin(given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	if self, err := os.Executable(); err == nil && filepath.Base(self) == "kith-lab" {
		return filepath.Dir(self), nil
	}
	if d := os.Getenv("KITH_BIN"); d != "" {
		return filepath.Abs(d)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "kith-lab")); err == nil {
			return filepath.Join(dir, "bin"), nil
		}
	}
	return "", errors.New("the directory of Kith's binaries is unknown: set KITH_BIN")
}

// WaitReady waits until every laptop that has an engine is Ready, ten minutes at most.
func (l *Lab) WaitReady(ctx context.Context, progress func(laptop, what string)) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range l.Laptops() {
		g.Go(func() error { return p.WaitReady(ctx, progress) })
	}
	return g.Wait()
}
