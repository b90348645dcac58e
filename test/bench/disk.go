package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lives are the pods that come and go while what is written is counted. Nobody schedules them: what is counted are the
// datastore's writes, and not containerd's.
const lives = 1000

// disk counts what the laptops write while nothing happens, and what the engine writes for pods.
func disk(ctx context.Context, r *rig) error {
	if err := r.idleWrites(ctx); err != nil {
		return err
	}
	return r.livesWritten(ctx)
}

func (r *rig) idleWrites(ctx context.Context) error {
	if _, err := r.pairOfPods(ctx); err != nil {
		return err
	}
	defer r.removePods(ctx)
	for _, n := range []*node{r.alice, r.bob} {
		if err := copied(ctx, n); err != nil {
			return err
		}
	}
	pause(ctx, time.Minute) // what was written before goes to the disk within half of it
	began := time.Now()
	before, err := r.usage()
	if err != nil {
		return err
	}
	pause(ctx, r.idle)
	now, err := r.usage()
	if err != nil {
		return err
	}
	days := time.Since(began).Hours() / 24
	for _, role := range []string{"consumer", "provider"} {
		var sum float64
		for _, name := range []string{"kith-k8s", "kithd"} {
			sum += now[program{role, name}].written - before[program{role, name}].written
		}
		r.report.Add("written to disk in an idle day, one peer, two pods, "+role+": engine and kithd", "MB", sum/days)
	}
	return ctx.Err()
}

// copied writes until the engine has copied its log into the database for the first time. It does so each 2 MB, so what a start has
// written would be copied once, in the middle of nothing happening.
func copied(ctx context.Context, n *node) error {
	const each = 100_000
	configs := n.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := range 100 {
		if st, err := os.Stat(n.Path(database)); err != nil {
			return err
		} else if st.Size() > each {
			return nil
		}
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("much-%d", i)}, Data: map[string]string{"a": strings.Repeat("x", each)}}
		if _, err := configs.Create(ctx, config, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := configs.Delete(ctx, config.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
	return errors.New("the engine does not copy its log")
}

func (r *rig) livesWritten(ctx context.Context) error {
	pods := r.bob.kube.CoreV1().Pods(metav1.NamespaceDefault)
	before, err := r.usage()
	if err != nil {
		return err
	}
	var largest atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range lives {
		group.Go(func() error {
			p := pod(fmt.Sprintf("life-%d", i), "", echo())
			p.Spec.SchedulerName = "nobody"
			made, err := pods.Create(ctx, p, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded} {
				made.Status.Phase = phase
				if made, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
					return err
				}
			}
			largest.Store(max(largest.Load(), stored(r.bob)))
			return pods.Delete(ctx, made.Name, *metav1.NewDeleteOptions(0))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	now, err := r.usage()
	if err != nil {
		return err
	}
	engine := program{"provider", "kith-k8s"}
	r.report.Add("written to disk for a pod's life of five writes: engine", "kB", 1e3*(now[engine].written-before[engine].written)/lives)
	if largest.Load() == 0 {
		return errors.New("the laptop's database is not found")
	}
	r.report.Add(fmt.Sprintf("database and log, the largest while %d pods came and went", lives), "MB", float64(largest.Load())/1e6)
	return nil
}

// database of the engine, in a laptop; its log is beside it.
const database = "/var/lib/kith/k8s/db/state.db"

// stored is what the datastore's database and its log take, in bytes.
func stored(n *node) (sum int64) {
	for _, name := range []string{database, database + "-wal"} {
		if st, err := os.Stat(n.Path(name)); err == nil {
			sum += st.Size()
		}
	}
	return sum
}
