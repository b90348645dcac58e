package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// broker starts one pod at home, one at bob, and one that goes on from bob to carol, by turns: three laptops, of which bob offers on to alice what
// carol grants him.
func broker(ctx context.Context, r *rig) (err error) {
	home, down, err := threeUp(ctx, r, "broker")
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return err
	}
	alice, bob, carol := home.lab.Laptop("alice"), home.lab.Laptop("bob"), home.lab.Laptop("carol")
	for _, step := range []func() error{
		func() error { return says(carol.Kith(ctx, "share", "50%", "--reoffer")) },
		func() error { return accept(ctx, bob, carol, "--cpu", "400m", "--memory", "256Mi", "--pods", "10") },
		func() error { return says(bob.Kith(ctx, "share", "50%", "--reoffer-from", "carol")) },
		func() error { return accept(ctx, alice, bob, "--cpu", "1", "--memory", "512Mi", "--pods", "20") },
		func() error { return home.ensureNamespace(ctx) },
		func() error { return says(home.alice.Kith(ctx, "offload", namespace)) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	seen, stop, err := watchPods(ctx, home.alice, namespace)
	if err != nil {
		return err
	}
	defer stop()
	// What asks for more than carol grants stays at bob; what finds no room at bob goes on.
	ways := []struct {
		word, node, at string
		cpu            string
	}{{"at home", "alice", "", "100m"}, {"at a peer", abroad, "bob", "500m"}, {"by a broker", abroad, "kith-carol", "100m"}}
	for i := range max(4, r.rounds) {
		var ready [3]time.Duration
		for k := range ways {
			n := (i + k) % len(ways)
			way := ways[n]
			if way.at == "kith-carol" {
				if err := home.fill(ctx); err != nil {
					return err
				}
			}
			p := pod(fmt.Sprintf("hop-%d-%d", i, n), way.node, echo())
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(way.cpu), corev1.ResourceMemory: resource.MustParse("16Mi")}
			began := time.Now()
			if _, err := home.alice.kube.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
				return err
			}
			if ready[n], err = seen.until(ctx, began, "pod "+p.Name+" Ready", func(s pods) bool { return s[p.Name] }); err != nil {
				return err
			}
			if err := home.isAt(ctx, p.Name, way.at); err != nil {
				return err
			}
			if err := home.alice.kube.CoreV1().Pods(namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			if _, err := seen.until(ctx, time.Now(), "pod "+p.Name+" gone", func(s pods) bool { return len(s) == 0 }); err != nil {
				return err
			}
			if way.at == "kith-carol" {
				if err := home.unfill(ctx); err != nil {
					return err
				}
			}
		}
		one, two := ready[1]-ready[0], ready[2]-ready[0]
		r.report.Took("one pod Ready, at a peer - at home", one)
		r.report.Took("one pod Ready, by a broker - at home", two)
		if one > 0 {
			r.report.Ratio("one pod Ready, what a broker adds to home / what a peer adds", "s", two.Seconds()/one.Seconds())
		}
	}
	return nil
}

// says is the error of a command with what it wrote.
func says(out string, err error) error {
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// isAt checks on which node of bob's a pod of alice's runs; "": on none.
func (r *rig) isAt(ctx context.Context, name, node string) error {
	if node == "" {
		return nil
	}
	all, err := r.bob.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	if len(all.Items) != 1 || all.Items[0].Spec.NodeName != node {
		return fmt.Errorf("pod %s is not at %s: %d of that name, %s", name, node, len(all.Items), all.Items[0].Spec.NodeName)
	}
	return nil
}

// filler takes bob's own processors.
const filler = "filler"

// fill leaves less of bob's processors than a pod asks for.
func (r *rig) fill(ctx context.Context) error {
	node, err := r.bob.kube.CoreV1().Nodes().Get(ctx, "bob", metav1.GetOptions{})
	if err != nil {
		return err
	}
	left := node.Status.Allocatable.Cpu().DeepCopy()
	all, err := r.bob.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=bob"})
	if err != nil {
		return err
	}
	for _, p := range all.Items {
		for _, c := range p.Spec.Containers {
			left.Sub(*c.Resources.Requests.Cpu())
		}
	}
	left.Sub(resource.MustParse("50m"))
	p := pod(filler, "bob", echo())
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: left}
	return r.start(ctx, r.bob, metav1.NamespaceDefault, p)
}

func (r *rig) unfill(ctx context.Context) error {
	r.remove(ctx, r.bob, metav1.NamespaceDefault, filler)
	_, err := until(ctx, "bob has room", func() bool {
		_, err := r.bob.kube.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, filler, metav1.GetOptions{})
		return err != nil && strings.Contains(err.Error(), "not found")
	})
	return err
}
