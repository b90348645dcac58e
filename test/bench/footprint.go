package main

import (
	"context"
	"fmt"
	"time"
)

// alone is the footprint of two laptops that know each other and share nothing.
func alone(ctx context.Context, r *rig) error {
	if err := r.laptops(ctx); err != nil {
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
			r.report.add(fmt.Sprintf("memory, %s, %s: %s", when, p.role, p.name), "MB", now[p].rss)
		}
		for _, p := range programs[:2] {
			r.report.add(fmt.Sprintf("memory, %s, %s: %s, private", when, p.role, p.name), "MB", now[p].anon)
			engine := program{p.role, "kith-k8s"}
			r.report.add(fmt.Sprintf("memory, %s, %s: engine and kithd", when, p.role), "MB", now[p].rss+now[engine].rss)
		}
	}
	for _, p := range programs {
		percent := 100 * (now[p].cpu - before[p].cpu) / time.Since(began).Seconds()
		r.report.add(fmt.Sprintf("idle CPU, %s, %s: %s", when, p.role, p.name), "% of a core", percent)
	}
	for _, p := range programs[:2] {
		wakes := float64(now[p].switches-before[p].switches) / time.Since(began).Seconds()
		r.report.add(fmt.Sprintf("idle wake-ups, %s, %s: %s", when, p.role, p.name), "/s", wakes)
	}
	return ctx.Err()
}

// program is one of those whose memory and CPU time are told; a laptop may run it several times.
type program struct{ role, name string }

var programs = []program{
	{"consumer", "kithd"}, {"provider", "kithd"}, {"consumer", "kith-k8s"}, {"provider", "kith-k8s"},
	{"consumer", "containerd"}, {"provider", "containerd"}, {"consumer", "containerd-shim"}, {"provider", "containerd-shim"},
}

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
			s := sum[key]
			sum[key] = process{rss: s.rss + p.rss, anon: s.anon + p.anon, cpu: s.cpu + p.cpu, switches: s.switches + p.switches, written: s.written + p.written}
		}
	}
	return sum, nil
}
