package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"kith.dev/test/lab"
)

// alone is the footprint of two laptops that know each other and share nothing.
func alone(ctx context.Context, r *rig) error {
	if err := r.ready(ctx); err != nil { // their Kubernetes may sleep by now
		return err
	}
	return r.weigh(ctx, "no peer", 30*time.Second)
}

// footprint is the same with a peering in use: two small pods, one of them abroad.
func footprint(ctx context.Context, r *rig) error {
	if _, err := r.pairOfPods(ctx); err != nil {
		return err
	}
	defer r.removePods(ctx)
	return r.weigh(ctx, "one peer, two pods", time.Minute)
}

// calm is how long nothing happens before a laptop counts as idle.
const calm = 5 * time.Minute

// idle is the same in a lab that has done nothing yet, after minutes in which nothing happened.
func idle(ctx context.Context, r *rig) error {
	r.down()
	if err := r.befriend(ctx); err != nil {
		return err
	}
	if _, err := r.pairOfPods(ctx); err != nil {
		return err
	}
	defer r.removePods(ctx)
	pause(ctx, calm)
	return r.weigh(ctx, "after five calm minutes", 2*time.Minute)
}

// weigh samples memory while the laptops are idle, and sums up their CPU time.
func (r *rig) weigh(ctx context.Context, when string, long time.Duration) error {
	pause(ctx, 10*time.Second) // what was started before settles
	began := time.Now()
	before, err := r.usage()
	if err != nil {
		return err
	}
	const samples = 5
	var now map[program]process
	for range samples {
		pause(ctx, long/samples)
		if now, err = r.usage(); err != nil {
			return err
		}
		for _, p := range programs {
			r.report.Add(fmt.Sprintf("memory, %s, %s: %s", when, p.role, p.name), "MB", now[p].rss)
		}
		for _, p := range programs[:2] {
			r.report.Add(fmt.Sprintf("memory, %s, %s: %s, private", when, p.role, p.name), "MB", now[p].anon)
			engine := program{p.role, "kith-k8s"}
			r.report.Add(fmt.Sprintf("memory, %s, %s: engine and kithd", when, p.role), "MB", now[p].rss+now[engine].rss)
		}
	}
	for _, p := range programs {
		percent := 100 * (now[p].cpu - before[p].cpu) / time.Since(began).Seconds()
		r.report.Add(fmt.Sprintf("idle CPU, %s, %s: %s", when, p.role, p.name), "% of a core", percent)
	}
	for _, p := range programs {
		wakes := float64(now[p].switches-before[p].switches) / time.Since(began).Seconds()
		r.report.Add(fmt.Sprintf("idle wake-ups, %s, %s: %s", when, p.role, p.name), "a second", wakes)
	}
	return ctx.Err()
}

// program is one of those whose memory and CPU time are told; a laptop may run it several times.
type program struct{ role, name string }

var programs = []program{
	{"consumer", "kithd"}, {"provider", "kithd"}, {"consumer", "kith-k8s"}, {"provider", "kith-k8s"},
	{"consumer", "containerd"}, {"provider", "containerd"}, {"consumer", "containerd-shim"}, {"provider", "containerd-shim"},
	{"consumer", whole}, {"provider", whole},
}

// whole is all that runs at a laptop, but for pods.
const whole = "whole laptop"

// usage sums up each program at each laptop.
func (r *rig) usage() (map[program]process, error) {
	sum := map[program]process{}
	for role, n := range map[string]*node{"consumer": r.alice, "provider": r.bob} {
		list, err := processes(n.Laptop)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			key := program{role, p.name} // the kernel keeps 15 characters of a name
			sum[key] = sum[key].plus(p)
			all := program{role, whole}
			sum[all] = sum[all].plus(p)
		}
	}
	return sum, nil
}

// process is one process of a laptop.
type process struct {
	name     string
	rss      float64 // MB
	anon     float64 // MB of that which are in no file
	cpu      float64 // seconds, in all
	switches uint64  // times that a thread of it went to sleep, in all
	written  float64 // MB that it has the kernel write to disks, in all
}

func (p process) plus(o process) process {
	return process{rss: p.rss + o.rss, anon: p.anon + o.anon, cpu: p.cpu + o.cpu, switches: p.switches + o.switches, written: p.written + o.written}
}

// processes lists those of a laptop itself, but for the first, which is the lab's; pods have PID namespaces of their own.
func processes(p *lab.Laptop) ([]process, error) {
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", info.PID))
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var list []process
	for _, dir := range dirs {
		if filepath.Base(dir) == strconv.Itoa(info.PID) {
			continue
		}
		if space, err := os.Readlink(dir + "/ns/pid"); err != nil || space != own {
			continue
		}
		if one, ok := look(dir); ok {
			list = append(list, one)
		}
	}
	return list, nil
}

// look reads proc(5): the 14th and 15th field of stat are CPU time in hundredths of a second, the 24th is resident pages.
func look(dir string) (process, bool) {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return process{}, false // ended just now
	}
	open, end := strings.IndexByte(string(b), '('), strings.LastIndexByte(string(b), ')')
	if open < 0 || end < open {
		return process{}, false
	}
	f := strings.Fields(string(b[end+1:])) // from the third field on
	if len(f) < 22 {
		return process{}, false
	}
	number := func(field int) float64 {
		v, _ := strconv.ParseFloat(f[field-3], 64)
		return v
	}
	p := process{name: string(b[open+1 : end]), cpu: (number(14) + number(15)) / 100, rss: number(24) * float64(os.Getpagesize()) / 1e6}
	p.anon = float64(status(dir+"/status", "RssAnon")) * 1024 / 1e6
	p.written = float64(status(dir+"/io", "write_bytes")) / 1e6
	threads, _ := filepath.Glob(dir + "/task/[0-9]*/status")
	for _, t := range threads {
		p.switches += status(t, "voluntary_ctxt_switches")
	}
	return p, true
}

// secondsOf is the CPU time that processes have used so far.
func secondsOf(pids []int) (sum float64) {
	for _, pid := range pids {
		if one, ok := look(fmt.Sprintf("/proc/%d", pid)); ok {
			sum += one.cpu
		}
	}
	return sum
}

// status gives a number from a file as /proc/PID/status; sizes in it are in KiB.
func status(file, key string) uint64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); name == key {
			n, _ := strconv.ParseUint(strings.Fields(value)[0], 10, 64)
			return n
		}
	}
	return 0
}

// cpuSeconds is what the cgroups of both laptops, pods included, have used so far.
func (r *rig) cpuSeconds() (sum float64) {
	for _, n := range []*node{r.alice, r.bob} {
		sum += groupSeconds("kith-lab." + r.options.lab + "." + n.Name())
	}
	return sum
}

// groupSeconds reads version 1 of cgroups, else version 2.
func groupSeconds(group string) float64 {
	b, _ := os.ReadFile("/sys/fs/cgroup/cpuacct/" + group + "/cpuacct.usage")
	if ns, err := strconv.ParseFloat(strings.TrimSpace(string(b)), 64); err == nil {
		return ns / 1e9
	}
	b, _ = os.ReadFile("/sys/fs/cgroup/" + group + "/cpu.stat")
	var us float64
	_, _ = fmt.Sscanf(string(b), "usage_usec %f", &us)
	return us / 1e6
}
