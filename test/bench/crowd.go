package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
)

// crowd adds simulated peers to alice, first each with a contract, a tunnel and a node, then also with a namespace
// abroad, and weighs her kithd each time.
func crowd(ctx context.Context, r *rig) error {
	dir, err := os.MkdirTemp("", "kith-crowd")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pause(ctx, settle)
	before, err := r.kithd(time.Minute)
	if err != nil {
		return err
	}
	r.report.Add("memory, one peer, consumer: kithd", "MB", before.rss)
	var all []*provider
	defer func() {
		for _, p := range all {
			p.close()
		}
	}()
	began := time.Now()
	for i := range r.peers {
		p, err := r.simulate(ctx, i, dir)
		if err != nil {
			return err
		}
		all = append(all, p)
		if err := r.meet(ctx, p); err != nil {
			return err
		}
	}
	r.report.Took(fmt.Sprintf("%d peers asked one after the other, until the last is connected", len(all)), time.Since(began))
	peered, err := r.grown(ctx, "with a node", before)
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := r.send(ctx, p); err != nil {
			return err
		}
	}
	if _, err := r.grown(ctx, "with a node and a namespace", before); err != nil {
		return err
	}
	r.report.Add(fmt.Sprintf("idle CPU, %d peers with nodes, consumer: kithd", 1+len(all)), "% of a core", peered.cpu)
	r.report.Add(fmt.Sprintf("memory, %d peers with nodes, consumer: kithd", 1+len(all)), "MB", peered.rss)
	for _, p := range all {
		_ = r.alice.kube.CoreV1().Pods(namespace).Delete(ctx, p.pod(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if out, err := r.alice.Kith(ctx, "unpeer", p.name, "--yes"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return ctx.Err()
}

// settle is how long kithd gets to tidy up before it is weighed.
const settle = 2 * time.Minute

// kithd gives alice's kithd: its memory, and in percent of a core what it computes in so long.
func (r *rig) kithd(long time.Duration) (process, error) {
	key := program{"consumer", "kithd"}
	before, err := r.usage()
	if err != nil {
		return process{}, err
	}
	time.Sleep(long)
	after, err := r.usage()
	return process{rss: after[key].rss, cpu: 100 * (after[key].cpu - before[key].cpu) / long.Seconds()}, err
}

// grown tells what each simulated peer costs.
func (r *rig) grown(ctx context.Context, what string, before process) (process, error) {
	pause(ctx, settle)
	now, err := r.kithd(time.Minute)
	r.report.Add(fmt.Sprintf("memory, each of %d further peers %s, consumer: kithd", r.peers, what), "MB", (now.rss-before.rss)/float64(r.peers))
	return now, errors.Join(err, ctx.Err())
}

// meet peers alice with a simulated provider.
func (r *rig) meet(ctx context.Context, p *provider) error {
	if _, err := r.alice.kith.AddPeer(ctx, api.AddPeer{Address: p.address}); err != nil {
		return err
	}
	if _, err := until(ctx, "alice reaches "+p.name, func() bool { return r.alice.peer(ctx, p.name).Reachable }); err != nil {
		return err
	}
	ask := api.PeerAsk{Resources: api.Resources{api.CPU: "1", api.Memory: "1Gi", api.Pods: "10"}}
	ask.ID = p.me.ID().String() // as its owner would give it
	if _, err := r.alice.kith.Ask(ctx, p.name, ask, nil); err != nil {
		return err
	}
	_, err := until(ctx, p.name+" is connected", func() bool {
		now := r.alice.peer(ctx, p.name)
		return now.Outgoing == api.StateConnected && now.Tunnel.Up
	})
	return err
}

// send makes a pod for the simulated peer's node, so that its namespace has a twin there; nothing runs it.
func (r *rig) send(ctx context.Context, p *provider) error {
	if _, err := r.alice.kube.CoreV1().Pods(namespace).Create(ctx, pod(p.pod(), "kith-"+p.name, echo()), metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := until(ctx, "the namespace has a twin at "+p.name, func() bool { return p.twins.Load() > 0 })
	return err
}

func (p *provider) pod() string { return "for-" + p.name }
