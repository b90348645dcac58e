package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/core/api/v1alpha1"
)

// What goes through the front door and past it by turns.
const (
	doorClients = 8               // ask at once
	doorAsks    = 2 * time.Second // for as long
	doorPods    = 1000            // are listed; they have no node and never run
	doorLists   = 9
	doorEvents  = 200 // of a watch, each awaited
)

// frontDoor asks alice's API server by the front door and directly, by turns: small requests, a long list, events of a watch.
func frontDoor(ctx context.Context, r *rig) error {
	if err := r.laptops(ctx); err != nil {
		return err
	}
	text, err := r.alice.kith.Kubeconfig(ctx)
	if err != nil {
		return err
	}
	front, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return err
	}
	ways := map[string]*kubernetes.Clientset{}
	for name, config := range map[string]*rest.Config{"front door": front, "direct": r.alice.config} {
		config = rest.CopyConfig(config)
		config.Dial, config.QPS = r.alice.Dial, -1
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
		if ways[name], err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
	}
	const where = "bench-door"
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: where}}
	if _, err := r.alice.kube.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return err
	}
	defer r.alice.vanish(ctx, where)
	for i := range doorPods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("idle-%d", i)}, Spec: corev1.PodSpec{
			SchedulerName: "kith.dev/none", Containers: []corev1.Container{{Name: "none", Image: "none"}},
		}}
		if _, err := ways["direct"].CoreV1().Pods(where).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	names := []string{"front door", "direct"}
	for round := range max(1, r.rounds/2) {
		var rate, list, event [2]float64
		for n := range names {
			i := (round + n) % len(names) // who comes first has it no better in the long run
			way := names[i]
			kube := ways[way]
			if list[i], err = listed(ctx, kube, where); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			if rate[i], err = asks(ctx, kube); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			if event[i], err = watched(ctx, kube, r.alice.kube, where); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
		}
		r.report.Pair("requests, eight at once", "/s", "front door", rate[0], "direct", rate[1])
		r.report.Pair("list of 1000 pods", "ms", "front door", list[0], "direct", list[1])
		r.report.Pair("an object changed, until its event is there", "ms", "front door", event[0], "direct", event[1])
	}
	return nil
}

// vanish deletes a namespace, and waits: what follows is measured without that.
func (n *node) vanish(ctx context.Context, name string) {
	spaces := n.kube.CoreV1().Namespaces()
	if err := spaces.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err != nil {
		log.Printf("delete namespace %s: %v", name, err)
		return
	}
	if _, err := until(ctx, "namespace "+name+" is gone", func() bool {
		_, err := spaces.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}); err != nil {
		log.Print(err)
	}
}

// listed gives the median time of a list of all pods, in milliseconds. What a flood of requests leaves to be collected is over by then.
func listed(ctx context.Context, kube kubernetes.Interface, where string) (float64, error) {
	pause(ctx, 2*time.Second)
	var took []float64
	for range doorLists {
		began := time.Now()
		pods, err := kube.CoreV1().Pods(where).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil || len(pods.Items) != doorPods {
			return 0, fmt.Errorf("a list of %d pods: %w", len(pods.Items), err)
		}
		took = append(took, time.Since(began).Seconds()*1000)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// asks gives how many small requests are answered in a second.
func asks(ctx context.Context, kube kubernetes.Interface) (float64, error) {
	end := time.Now().Add(doorAsks)
	var answered atomic.Int64
	var failed atomic.Pointer[error]
	var clients sync.WaitGroup
	for range doorClients {
		clients.Go(func() {
			for time.Now().Before(end) {
				if _, err := kube.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil {
					failed.Store(&err)
					return
				}
				answered.Add(1)
			}
		})
	}
	clients.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(answered.Load()) / doorAsks.Seconds(), nil
}

// watched changes an object again and again, and gives the median time until a watch tells of it, in milliseconds.
func watched(ctx context.Context, kube, direct kubernetes.Interface, where string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	maps := direct.CoreV1().ConfigMaps(where)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "seen-"}}
	object, err := maps.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	w, err := kube.CoreV1().ConfigMaps(where).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + object.Name})
	if err != nil {
		return 0, err
	}
	defer w.Stop()
	if e, open := <-w.ResultChan(); !open { // the object as it is
		return 0, fmt.Errorf("the watch ended: %v", e)
	}
	var took []float64
	for i := range doorEvents {
		object.Data = map[string]string{"n": fmt.Sprint(i)}
		began := time.Now()
		changed := make(chan error, 1)
		go func() {
			var err error
			object, err = maps.Update(ctx, object, metav1.UpdateOptions{})
			changed <- err
		}()
		if _, open := <-w.ResultChan(); !open {
			return 0, errors.New("the watch ended")
		}
		took = append(took, time.Since(began).Seconds()*1000)
		if err := <-changed; err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// modes tethers alice to bob and back, whose policy answers: the commands, and until her kubectl is at bob's and at her own again.
func modes(ctx context.Context, r *rig) error {
	if err := r.ready(ctx); err != nil { // their Kubernetes may sleep by now
		return err
	}
	mine, err := r.alice.kith.Status(ctx)
	if err != nil {
		return err
	}
	theirs, err := r.bob.kith.Status(ctx)
	if err != nil {
		return err
	}
	policy := fmt.Sprintf(`{"apiVersion": "kith.dev/v1alpha1", "kind": "TetherPolicy", "metadata": {"name": "bench"},
		"spec": {"peers": [%q], "autoAccept": true, "namespaces": [{"name": "bench-team", "clusterRole": "edit"}]}}`, mine.ID)
	if out, err := r.bob.KubectlInput(ctx, strings.NewReader(policy), "apply", "-f", "-"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	defer func() {
		if out, err := r.bob.Kubectl(context.WithoutCancel(ctx), "delete", "tetherpolicy", "bench"); err != nil {
			log.Printf("%v\n%s", err, out)
		}
	}()
	if _, err := until(ctx, "bob would run alice", func() bool { // his kithd hears of the policy a moment later
		check, err := r.alice.kith.CheckTether(ctx, "bob")
		return err == nil && len(check.Blockers) == 0
	}); err != nil {
		return err
	}
	text, err := r.alice.kith.Kubeconfig(ctx)
	if err != nil {
		return err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return err
	}
	config.Dial, config.QPS = r.alice.Dial, -1
	front, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	atCompany := func() bool {
		_, err := front.CoreV1().Pods("bench-team").List(ctx, metav1.ListOptions{})
		return err == nil
	}
	for range r.rounds {
		began := time.Now()
		if out, err := r.alice.Kith(ctx, "tether", "bob", "--yes", "--id", theirs.ID); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		r.report.Took("tether: the command", time.Since(began))
		is, err := until(ctx, "kubectl is at the company", atCompany)
		if err != nil {
			return err
		}
		r.report.Took("tether: until kubectl is at the company", is.Sub(began))
		began = time.Now()
		if out, err := r.alice.Kith(ctx, "untether", "--yes"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		r.report.Took("untether: the command", time.Since(began))
		is, err = until(ctx, "kubectl is at home", func() bool {
			_, err := front.CoreV1().Nodes().Get(ctx, "alice", metav1.GetOptions{})
			return err == nil
		})
		if err != nil {
			return err
		}
		r.report.Took("untether: until kubectl is at home", is.Sub(began))
		if _, err := until(ctx, "the company has no node of alice's", func() bool {
			nodes, err := r.bob.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelPeer})
			return err == nil && len(nodes.Items) == 0
		}); err != nil {
			return err
		}
	}
	return nil
}
