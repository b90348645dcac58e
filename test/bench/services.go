package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"kith.dev/core/api/v1alpha1"
)

// services makes Services of a pod at home and sees when their endpoints are ready at home and at the peer.
func services(ctx context.Context, r *rig) error {
	p := pod("backend", "alice", echo())
	if err := r.start(ctx, r.alice, namespace, p); err != nil {
		return err
	}
	defer r.remove(ctx, r.alice, namespace, p.Name)
	return r.serve(ctx, "service", p.Name, r.bob)
}

// serve makes Services of an app and reports, as figures of what, when their endpoints are ready at home and at a peer.
func (r *rig) serve(ctx context.Context, what, app string, peer *node) error {
	twins, err := peer.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHomeNamespace + "=" + namespace})
	if err != nil || len(twins.Items) != 1 {
		return fmt.Errorf("the twin of %s at %s: %d namespaces, %w", namespace, peer.Name(), len(twins.Items), err)
	}
	for i := range 2 * r.rounds {
		if err := r.service(ctx, what, fmt.Sprintf("service-%d", i), app, peer, twins.Items[0].Name); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) service(ctx context.Context, what, name, app string, peer *node, twin string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	of := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name}
	var seen [2]watch.Interface
	for i, at := range []struct {
		n         *node
		namespace string
	}{{r.alice, namespace}, {peer, twin}} {
		w, err := at.n.kube.DiscoveryV1().EndpointSlices(at.namespace).Watch(ctx, of)
		if err != nil {
			return err
		}
		defer w.Stop()
		seen[i] = w
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": app}, Ports: []corev1.ServicePort{{Port: 8080}},
	}}
	began := time.Now()
	if _, err := r.alice.kube.CoreV1().Services(namespace).Create(ctx, s, metav1.CreateOptions{}); err != nil {
		return err
	}
	answered := time.Since(began)
	home, err := served(ctx, seen[0], name)
	if err != nil {
		return err
	}
	there, err := served(ctx, seen[1], name)
	if err != nil {
		return err
	}
	ms := func(t time.Time) float64 { return float64(t.Sub(began).Microseconds()) / 1000 }
	r.report.Add(what+": created, until the API server's answer", "ms", float64(answered.Microseconds())/1000)
	r.report.Add(what+": created, until its endpoints are ready at home", "ms", ms(home))
	r.report.Add(what+": created, until its endpoints are ready at the peer", "ms", ms(there))
	r.report.Add(what+": the API server's answer, until its endpoints are ready at the peer", "ms", ms(there)-float64(answered.Microseconds())/1000)
	r.report.Add(what+": endpoints ready at the peer - at home", "ms", ms(there)-ms(home))
	if err := r.alice.kube.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	for e := range seen[1].ResultChan() {
		if e.Type == watch.Deleted {
			pause(ctx, 200*time.Millisecond)
			return nil
		}
	}
	return fmt.Errorf("the endpoints of %s stay at the peer", name)
}

// served tells when there was an endpoint that is ready.
func served(ctx context.Context, w watch.Interface, service string) (time.Time, error) {
	for e := range w.ResultChan() {
		slice, ok := e.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		for _, p := range slice.Endpoints {
			if p.Conditions.Ready != nil && *p.Conditions.Ready {
				return time.Now(), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("no ready endpoints of %s (%w)", service, ctx.Err())
}
