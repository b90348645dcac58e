package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/core/api/v1alpha1"
)

// manyNamespaces is how many of them a peer is to have at once.
const manyNamespaces = 200

// namespaces offloads that many, so that each has a twin at bob, and weighs what they cost: memory, and watches that the API
// servers serve. Then it deletes them, and counts how fast the twins go.
func namespaces(ctx context.Context, r *rig) error {
	pause(ctx, 20*time.Second)
	before, err := r.usage()
	if err != nil {
		return err
	}
	watches := map[*node]float64{}
	for _, n := range []*node{r.alice, r.bob} {
		if watches[n], err = n.watches(ctx); err != nil {
			return err
		}
	}
	name := func(i int) string { return fmt.Sprintf("many-%d", i) }
	if err := r.eachNamespace(ctx, func(ctx context.Context, i int) error { return r.offloadOne(ctx, name(i)) }); err != nil {
		return err
	}
	twins := func() int { return r.bob.twins(ctx, "many-") }
	if _, err := untilWithin(ctx, 5*patience, "every namespace has a twin", func() bool { return twins() == manyNamespaces }); err != nil {
		return err
	}
	pause(ctx, settle)
	after, err := r.usage()
	if err != nil {
		return err
	}
	for _, p := range programs {
		r.report.Add(fmt.Sprintf("memory, each of %d namespaces at a peer, %s: %s", manyNamespaces, p.role, p.name), "KB", 1024*(after[p].rss-before[p].rss)/manyNamespaces)
	}
	for role, n := range map[string]*node{"consumer": r.alice, "provider": r.bob} {
		now, err := n.watches(ctx)
		if err != nil {
			return err
		}
		r.report.Add(fmt.Sprintf("watches that the API server serves, with %d namespaces at a peer - without, %s", manyNamespaces, role), "", now-watches[n])
	}
	began := time.Now()
	if err := r.eachNamespace(ctx, func(ctx context.Context, i int) error {
		err := r.alice.kube.CoreV1().Namespaces().Delete(ctx, name(i), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	if _, err := untilWithin(ctx, 5*patience, "every twin is gone", func() bool { return twins() == 0 }); err != nil {
		return err
	}
	r.report.Add(fmt.Sprintf("%d namespaces deleted at home, until they are gone at the peer: rate", manyNamespaces), "/s", manyNamespaces/time.Since(began).Seconds())
	return nil
}

// offloadOne makes a namespace with a pod for bob that he refuses, as it asks for more than he grants: so the namespace is there,
// with what the pod needs, and no container takes memory.
func (r *rig) offloadOne(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelOffload: "true"}}}
	if _, err := r.alice.kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	greedy := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "greedy"}, Spec: corev1.PodSpec{
		NodeName: "kith-bob", Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintPeer, Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "greedy", Image: "kith.dev/echo:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}}}},
	}}
	var err error
	_, waited := until(ctx, "a pod can be made in a new namespace", func() bool { // whose service account is made a moment later
		_, err = r.alice.kube.CoreV1().Pods(name).Create(ctx, greedy, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	if waited != nil {
		return errors.Join(waited, err)
	}
	return nil
}

// eachNamespace does it for all of them, eight at once.
func (r *rig) eachNamespace(ctx context.Context, do func(context.Context, int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var next atomic.Int32
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			for i := int(next.Add(1)); i <= manyNamespaces && ctx.Err() == nil; i = int(next.Add(1)) {
				if err := do(ctx, i); err != nil {
					stop(err)
				}
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
}

// twins counts the namespaces here that stand for others whose names begin like this; -1 when that is not known.
func (n *node) twins(ctx context.Context, prefix string) (count int) {
	list, err := n.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHomeNamespace})
	if err != nil {
		return -1
	}
	for _, ns := range list.Items {
		if strings.HasPrefix(ns.Name, prefix) {
			count++
		}
	}
	return count
}

// watches counts those that the API server serves at this moment.
func (n *node) watches(ctx context.Context) (sum float64, err error) {
	text, err := n.kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("apiserver_longrunning_requests{")) || !bytes.Contains(line, []byte(`verb="WATCH"`)) {
			continue
		}
		fields := strings.Fields(string(line))
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, err
		}
		sum += value
	}
	return sum, nil
}
