package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kith.dev/test/chart"
	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// nodes has pods of a cluster of three nodes, which has Kith by its chart, send to a pod of theirs at a laptop: from the gateway's node, and from
// another, whose packets go through the overlay first. By turns a pod of a laptop does the same, and a node without any tunnel.
func nodes(ctx context.Context, r *rig) (err error) {
	dir, err := os.MkdirTemp("", "kith-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archives, err := images.Build(ctx, dir)
	if err != nil {
		return err
	}
	kith, err := chart.Image(ctx, ".")
	if err != nil {
		return err
	}
	l, err := lab.Up(ctx, lab.Options{Name: r.options.lab + "nodes", Names: []string{"alice", "bob"}, Clusters: []lab.Cluster{{Name: "corp", Nodes: 3}}, Images: append(archives, kith)})
	if l != nil {
		defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return err
	}
	alice, err := connect(l.Laptop("alice"))
	if err != nil {
		return err
	}
	bob, err := connect(l.Laptop("bob"))
	if err != nil {
		return err
	}
	corp, err := connect(l.Laptop("corp-1"))
	if err != nil {
		return err
	}
	gateway, err := installed(ctx, corp.Laptop, alice.Laptop)
	if err != nil {
		return err
	}
	if err := accept(ctx, bob.Laptop, alice.Laptop, "--cpu", "400m", "--memory", "512Mi", "--pods", "40"); err != nil {
		return fmt.Errorf("bob and alice: %w", err)
	}
	other := map[string]string{"corp-2": "corp-3", "corp-3": "corp-2"}[gateway]

	start := func(at *node, name, on string, change func(*corev1.Pod)) (address string, err error) {
		p := pod(name, "", container("echo", "kith.dev/echo:1"), load())
		if change != nil {
			change(p)
		}
		p.Spec.NodeName = on
		if err := r.start(ctx, at, namespace, p); err != nil {
			return "", err
		}
		now, err := at.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return now.Status.PodIP, nil
	}
	ofHost := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	for _, at := range []*node{alice, bob, corp} {
		if _, err := at.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if out, err := bob.Kith(ctx, "offload", namespace); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if out, err := inLeader(ctx, corp.Laptop, "kith", "offload", namespace); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	// abroad gives a pod of a cluster at alice; the namespace is offloaded a moment after it was said.
	abroad := func(at *node) (address string, err error) {
		_, waited := until(ctx, "the namespace is offloaded", func() bool {
			address, err = start(at, "away", "kith-alice", nil)
			return !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)
		})
		return address, errors.Join(waited, err)
	}
	corps, err := abroad(corp)
	if err != nil {
		return err
	}
	bobs, err := abroad(bob)
	if err != nil {
		return err
	}
	if _, err := start(alice, "plain", "alice", ofHost); err != nil {
		return err
	}
	lan, err := alice.Address()
	if err != nil {
		return err
	}
	type way struct {
		name, from, to string
		at             *node
	}
	ways := []way{{"other node", "far", corps, corp}, {"gateway's node", "near", corps, corp}, {"laptop", "home", bobs, bob}, {"direct", "host", lan.String(), corp}}
	for _, one := range []struct {
		at       *node
		name, on string
		change   func(*corev1.Pod)
	}{{corp, "far", other, nil}, {corp, "near", gateway, nil}, {corp, "host", other, ofHost}, {bob, "home", "bob", nil}} {
		if _, err := start(one.at, one.name, one.on, one.change); err != nil {
			return err
		}
	}
	run := func(w way, report any, args ...string) error {
		out, err := w.at.Kubectl(ctx, append([]string{"-n", namespace, "exec", w.from, "-c", "load", "--", "/app"}, args...)...)
		if err != nil {
			return fmt.Errorf("%s: %w: %s", w.name, err, out)
		}
		return json.Unmarshal([]byte(out), report)
	}
	for i := range max(4, r.rounds/2) {
		speed, p50 := map[string]float64{}, map[string]float64{}
		for k := range ways {
			w := ways[(i+k)%len(ways)]
			var s sent
			if err := run(w, &s, "blast", "-duration", "3s", w.to+":7000"); err != nil || s.Broken != "" {
				return fmt.Errorf("%s %w", s.Broken, err)
			}
			var h struct {
				P50    float64 `json:"p50ms"`
				Errors int
			}
			if err := run(w, &h, "http", "-rate", "100", "-duration", "3s", "http://"+w.to+":8080/"); err != nil || h.Errors > 0 {
				return fmt.Errorf("%s: %d errors %w", w.name, h.Errors, err)
			}
			speed[w.name], p50[w.name] = s.MBits, h.P50
		}
		const tcp, http = "TCP, from a cluster of three nodes", "HTTP request, from a cluster of three nodes, median of 300"
		for _, w := range ways {
			r.report.Add(tcp+", "+w.name, "Mbit/s", speed[w.name])
			r.report.Add(http+", "+w.name, "ms", p50[w.name])
		}
		for _, pair := range [][2]string{{"other node", "gateway's node"}, {"gateway's node", "laptop"}, {"other node", "direct"}} {
			r.report.Ratio(tcp+", "+pair[0]+" / "+pair[1], "Mbit/s", speed[pair[0]]/speed[pair[1]])
			r.report.Ratio(http+", "+pair[0]+" / "+pair[1], "ms", p50[pair[0]]/p50[pair[1]])
		}
	}
	return nil
}

var itsID = regexp.MustCompile(`"id": *"([A-Z0-9-]+)"`)

// installed has the chart in a cluster, with the gateway on another node than the API server's, which it gives, and the cluster consume from a laptop.
func installed(ctx context.Context, corp, laptop *lab.Laptop) (gateway string, err error) {
	if err := chart.Carry(ctx, ".", corp); err != nil {
		return "", err
	}
	if out, err := corp.Kubectl(ctx, "label", "node", "corp-2", "corp-3", "gateway=yes"); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if err := chart.Install(ctx, corp, "nodeSelector.gateway=yes", "replicas=1"); err != nil {
		return "", err
	}
	if _, err := untilWithin(ctx, 5*patience, "a kithd works", func() bool { _, gateway = chart.Leader(ctx, corp); return gateway != "" }); err != nil {
		return "", err
	}
	for _, part := range []string{"daemonset/kith-nodes", "deployment/kith"} {
		if out, err := corp.Kubectl(ctx, "-n", chart.Namespace, "rollout", "status", part, "--timeout=90s"); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
	}
	id := func(say func() (string, error)) (string, error) {
		out, err := say()
		m := itsID.FindStringSubmatch(out)
		if err != nil || m == nil {
			return "", fmt.Errorf("kith status: %q %w", out, err)
		}
		return m[1], nil
	}
	me, err := id(func() (string, error) { return inLeader(ctx, corp, "kith", "status", "-o", "json") })
	if err != nil {
		return "", err
	}
	hers, err := id(func() (string, error) { return laptop.Kith(ctx, "status", "-o", "json") })
	if err != nil {
		return "", err
	}
	if out, err := laptop.Kith(ctx, "share", "--policy", "corp", "--to", me, "--cpu", "1", "--memory", "512Mi", "--pods", "10", "--auto-accept"); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	if out, err := laptop.Kubectl(ctx, "patch", "sharingpolicy", "corp", "--type=merge", "-p", `{"spec":{"images":{"present":["kith.dev/*"]}}}`); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	said := ""
	_, err = until(ctx, "the cluster consumes from "+laptop.Name(), func() bool {
		out, err := inLeader(ctx, corp, "kith", "peer", hers, "--cpu", "500m", "--memory", "256Mi", "--pods", "5", "--timeout", "30s")
		if said = fmt.Sprint(out, err); err != nil {
			time.Sleep(200 * time.Millisecond) // questions have a rate
		}
		return err == nil
	})
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return gateway, nil
}

// inLeader runs a command in the pod of the kithd that works.
func inLeader(ctx context.Context, corp *lab.Laptop, args ...string) (string, error) {
	pod, _ := chart.Leader(ctx, corp)
	return corp.Kubectl(ctx, append([]string{"-n", chart.Namespace, "exec", pod, "--"}, args...)...)
}
