package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api"
)

// recovery restarts kithd on either side while a TCP connection between pods is open, and cuts bob's power.
func recovery(ctx context.Context, r *rig) error {
	away, err := r.pairOfPods(ctx)
	if err != nil {
		return err
	}
	defer r.removePods(ctx)
	for range max(1, r.rounds/3) {
		for _, at := range []struct {
			role string
			n    *node
		}{{"consumer", r.alice}, {"provider", r.bob}} {
			if err := r.restart(ctx, at.role, at.n, away); err != nil {
				return err
			}
		}
	}
	for range max(1, r.rounds/5) {
		if err := r.powerLoss(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) restart(ctx context.Context, role string, n *node, away string) error {
	type stream struct {
		Gap    float64 `json:"gapms"`
		Broken string
	}
	var s stream
	done := make(chan error, 1)
	go func() { done <- r.load(ctx, &s, "stream", "-duration", "10s", away+":7000") }()
	pause(ctx, 2*time.Second) // the connection is open by then
	began := time.Now()
	if err := n.RestartDaemon(ctx); err != nil {
		return err
	}
	again, err := until(ctx, "connected again", func() bool { return r.connected(ctx) })
	if err != nil {
		return err
	}
	r.report.Took("kithd restarted at the "+role+": connected again", again.Sub(began))
	if err := <-done; err != nil {
		return err
	}
	if s.Broken != "" {
		return fmt.Errorf("the connection between the pods broke: %s", s.Broken)
	}
	r.report.Add("kithd restarted at the "+role+": gap in a TCP connection of pods", "s", s.Gap/1000)
	return nil
}

// connected says whether both sides say so, and the tunnel carries.
func (r *rig) connected(ctx context.Context) bool {
	out, in := r.alice.peer(ctx, "bob"), r.bob.peer(ctx, "alice")
	return out.Outgoing == api.StateConnected && in.Incoming == api.StateConnected && out.Reachable && in.Reachable && out.Tunnel.Up && in.Tunnel.Up
}

func (r *rig) powerLoss(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	atAlice, err := events(ctx, r.alice.kith, false)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := r.bob.Kill(ctx); err != nil {
		return err
	}
	noticed, err := happens(ctx, atAlice, began, api.EventPeerUnreachable, "bob")
	if err != nil {
		return fmt.Errorf("%w; alice says of him: %+v", err, r.alice.peer(ctx, "bob"))
	}
	r.report.Took("provider loses power: consumer shows it unreachable", noticed.at.Sub(began))
	began = time.Now()
	if err := r.bob.Boot(ctx); err != nil {
		return err
	}
	again, err := happens(ctx, atAlice, began, api.EventPeerConnected, "bob")
	if err != nil {
		return err
	}
	r.report.Took("provider boots: connected again", again.at.Sub(began))
	if err := r.bob.WaitReady(ctx, nil); err != nil {
		return err
	}
	if r.bob, err = connect(r.bob.Laptop); err != nil {
		return err
	}
	ready, err := until(ctx, "the pod abroad is Ready", func() bool {
		p, err := r.alice.kube.CoreV1().Pods(namespace).Get(ctx, "away", metav1.GetOptions{})
		return err == nil && isReady(p)
	})
	if err != nil {
		return err
	}
	r.report.Took("provider boots: its guest is Ready again", ready.Sub(began))
	return nil
}

// unpeerWithPods ends a peering while two pods of a Deployment are abroad; both come home.
func unpeerWithPods(ctx context.Context, r *rig) error {
	for range max(1, r.rounds/4) {
		if err := r.befriend(ctx); err != nil {
			return err
		}
		if err := r.comeHome(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) comeHome(ctx context.Context) error {
	seen, stop, err := watchPods(ctx, r.alice, namespace)
	if err != nil {
		return err
	}
	defer stop()
	d := deployment("guests", "", 2)
	d.Spec.Template.Spec.Affinity = prefer(abroad)
	deployments := r.alice.kube.AppsV1().Deployments(namespace)
	if _, err := deployments.Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := seen.until(ctx, time.Now(), "two pods Ready", func(s pods) bool { return s.ready() == 2 }); err != nil {
		return err
	}
	before := seen.names()
	began := time.Now()
	if out, err := r.alice.Kith(ctx, "unpeer", "bob", "--yes"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	r.report.Took("unpeer, two pods abroad: the command", time.Since(began))
	home, err := seen.until(ctx, began, "two pods Ready at home", func(s pods) bool { return s.ready() == 2 && !s.any(before) })
	if err != nil {
		return err
	}
	r.report.Took("unpeer, two pods abroad: both Ready at home", home)
	if err := deployments.Delete(ctx, d.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err = seen.until(ctx, began, "all pods gone", func(s pods) bool { return len(s) == 0 })
	return err
}
