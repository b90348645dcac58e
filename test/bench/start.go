package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/api"
	"kith.dev/core/base/timeline"
	"kith.dev/test/lab"
)

// sleepAfter is how long nobody has to need the Kubernetes of the laptop that starts, sleeps and wakes up.
const sleepAfter = 10 * time.Second

// asleepFor is how long a laptop is looked at while its Kubernetes sleeps.
const asleepFor = 30 * time.Second

// starts has one laptop start for the first time and with data, and has its Kubernetes sleep and wake up.
func starts(ctx context.Context, r *rig) error {
	for range max(1, r.rounds/4) {
		o := lab.Options{Name: r.options.lab + "one", Laptops: 1, Config: map[string]any{"engineIdle": sleepAfter.String()}}
		err := withLab(ctx, o, func(l *lab.Lab) error { return r.startsOf(ctx, l.Laptop("alice")) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) startsOf(ctx context.Context, p *lab.Laptop) error {
	if err := r.started(p, "first start"); err != nil {
		return err
	}
	for range 2 {
		if err := p.Kill(ctx); err != nil {
			return err
		}
		if err := p.Boot(ctx); err != nil {
			return err
		}
		if err := p.WaitReady(ctx, nil); err != nil {
			return err
		}
		if err := r.started(p, "start with data"); err != nil {
			return err
		}
	}
	for i := range 3 {
		n, err := connect(p)
		if err == nil {
			err = r.sleepAndWake(ctx, n, i == 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// started reads from the logs of both programs how long a start took.
func (r *rig) started(p *lab.Laptop, which string) error {
	kithd, err := lastStart(p, "kithd")
	if err != nil {
		return err
	}
	engine, err := lastStart(p, "k8s")
	if err != nil {
		return err
	}
	for _, part := range engine.Parts {
		switch part.Name {
		case "API server", "node":
			r.report.Took(which+", one laptop: kithd, until "+part.Name+" Ready", engine.At.Add(part.To).Sub(kithd.At))
		}
	}
	var last time.Duration
	for _, part := range kithd.Parts {
		last = max(last, part.To)
	}
	r.report.Took(which+", one laptop: kithd, until all of it is ready", last)
	return nil
}

func lastStart(p *lab.Laptop, log string) (timeline.Start, error) {
	name, err := p.LogFile(log)
	if err != nil {
		return timeline.Start{}, err
	}
	f, err := os.Open(name)
	if err != nil {
		return timeline.Start{}, err
	}
	defer f.Close()
	s, err := timeline.Read(f)
	if err == nil && len(s.Parts) == 0 {
		err = errors.New("no start is in it")
	}
	if err != nil {
		return s, fmt.Errorf("log %s: %w", filepath.Base(name), err)
	}
	return s, nil
}

// sleepAndWake waits until nothing of Kubernetes runs, and asks by the front door.
func (r *rig) sleepAndWake(ctx context.Context, n *node, look bool) error {
	text, err := n.kith.Kubeconfig(ctx)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return err
	}
	config.Dial = n.Dial
	front, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if _, err := until(ctx, "Kubernetes sleeps", func() bool {
		s, err := n.kith.Status(ctx)
		if err != nil || s.Engine.State != api.EngineAsleep {
			return false
		}
		list, err := processes(n.Laptop)
		return err == nil && len(list) == 1 // kithd
	}); err != nil {
		return err
	}
	if look {
		pause(ctx, settle)
		if err := r.asleep(ctx, n.Laptop); err != nil {
			return err
		}
	}
	began := time.Now()
	if _, err := front.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		return err
	}
	r.report.Took("Kubernetes that sleeps: asked by the front door, until the answer", time.Since(began))
	return nil
}

// asleep weighs all that runs at a laptop whose Kubernetes sleeps.
func (r *rig) asleep(ctx context.Context, p *lab.Laptop) error {
	sum := func() (all process, err error) {
		list, err := processes(p)
		for _, one := range list {
			all = all.plus(one)
		}
		return all, err
	}
	before, err := sum()
	if err != nil {
		return err
	}
	began := time.Now()
	pause(ctx, asleepFor)
	now, err := sum()
	if err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	r.report.Add("memory, asleep: whole laptop", "MB", now.rss)
	r.report.Add("idle CPU, asleep: whole laptop", "% of a core", 100*(now.cpu-before.cpu)/took)
	r.report.Add("idle wake-ups, asleep: whole laptop", "a second", float64(now.switches-before.switches)/took)
	return ctx.Err()
}
