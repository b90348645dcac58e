//go:build lab

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
	"kith.dev/test/pace"
)

// endpoints gives those of web in a namespace of a laptop: by address, whether they are ready and serving.
func (w *world) endpoints(p *lab.Laptop, namespace string) (map[string]bool, error) {
	var list discoveryv1.EndpointSliceList
	all := map[string]bool{}
	err := w.list(p, &list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: "web"})
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			all[e.Addresses[0]] = *e.Conditions.Ready && *e.Conditions.Serving
		}
	}
	return all, err
}

// onlyReady tells what is not right unless of the four endpoints of web at a laptop exactly those are ready that up says.
func (w *world) onlyReady(p *lab.Laptop, namespace string, up func(address string) bool) string {
	all, err := w.endpoints(p, namespace)
	if err != nil || len(all) != 4 {
		return fmt.Sprintf("%s has endpoints %v, %v", p.Name(), all, err)
	}
	for address, ready := range all {
		if ready != up(address) {
			return fmt.Sprintf("%s has endpoints %v, and %s should not be so", p.Name(), all, address)
		}
	}
	return ""
}

// addresses are those of pods.
func addresses(all []corev1.Pod, err error) (ips []string) {
	for i := range all {
		ips = append(ips, all[i].Status.PodIP)
	}
	return ips
}

// peerAt is the status of a Peer; an error is its Why.
func (w *world) peerAt(p *lab.Laptop, name string) (s v1alpha1.PeerStatus) {
	c, err := w.api(p)
	var peer v1alpha1.Peer
	if err == nil {
		ctx, cancel := context.WithTimeout(w.t.Context(), apiPatience)
		defer cancel()
		err = c.Get(ctx, client.ObjectKey{Name: name}, &peer)
	}
	if err != nil {
		s.Outgoing.Why, s.Incoming.Why = err.Error(), err.Error()
		return s
	}
	return peer.Status
}

// hang stops bob, and then alice, for as long as it takes to be noticed: kernels acknowledge for both. web has four pods, some
// of them at bob.
func hang(t *testing.T, l *lab.Lab) {
	const limit = 15 * time.Second
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	w := &world{t: t, l: l, alice: alice, bob: bob, apis: map[string]client.Client{}}
	twin := twinAt(t, bob, "shop")
	web := client.MatchingLabels{"app": "web"}
	var abroad []string // as alice sees them
	atHome, err := w.pods(alice, "shop", web)
	if err != nil {
		t.Fatal(err)
	}
	for i := range atHome {
		if atHome[i].Spec.NodeName == "kith-bob" {
			abroad = append(abroad, atHome[i].Status.PodIP)
		}
	}
	guests := addresses(w.pods(bob, twin, web))
	if len(abroad) == 0 || len(abroad) == 4 || len(guests) != len(abroad) {
		t.Fatalf("abroad are %v, guests %v", abroad, guests)
	}
	every := func(string) bool { return true }
	well := func() string {
		if out, in := w.peerAt(alice, "bob").Outgoing, w.peerAt(bob, "alice").Incoming; out.State != v1alpha1.StateConnected || in.State != v1alpha1.StateConnected {
			return fmt.Sprintf("alice says %s %s, bob %s %s", out.State, out.Why, in.State, in.Why)
		}
		if not := w.onlyReady(alice, "shop", every); not != "" {
			return not
		}
		return w.onlyReady(bob, twin, every)
	}
	freeze := func(p *lab.Laptop) time.Time {
		t.Helper()
		eventually(t, 30*time.Second, "all is well before", well)
		if err := p.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	thaw := func(p *lab.Laptop) {
		t.Helper()
		if err := p.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		ready := eventually(t, 20*time.Second, "all endpoints are ready after "+p.Name()+" goes on", func() string {
			if not := w.onlyReady(alice, "shop", every); not != "" {
				return not
			}
			return w.onlyReady(bob, twin, every)
		})
		took := ready + eventually(t, 20*time.Second, "all is well after "+p.Name()+" goes on", well)
		t.Logf("endpoints ready %s after %s went on, all well after %s", ready.Round(10*time.Millisecond), p.Name(), took.Round(10*time.Millisecond))
	}
	// in15 holds a time that an object has, in whole seconds, against the limit.
	in15 := func(what string, frozen time.Time, at metav1.Time) {
		t.Helper()
		took := at.Sub(frozen.Truncate(time.Second))
		if pace.Within(t, what, took, limit); took < 5*time.Second {
			t.Errorf("%s after %s already", what, took)
		}
		t.Logf("%s after %s", what, took)
	}

	freeze(bob)
	before := w.peerAt(alice, "bob").Outgoing
	time.Sleep(4 * time.Second)
	thaw(bob)
	if now := w.peerAt(alice, "bob").Outgoing; !now.Since.Equal(before.Since) {
		t.Errorf("bob stood still for 4 s, and that shows: %s since %s, before since %s", now.State, now.Since, before.Since)
	}

	frozen := freeze(bob)
	eventually(t, 30*time.Second, "the endpoints at bob are not ready", func() string {
		return w.onlyReady(alice, "shop", func(address string) bool { return !slices.Contains(abroad, address) })
	})
	out := w.peerAt(alice, "bob").Outgoing
	if out.State != v1alpha1.StateUnreachable || out.Why == "" {
		t.Errorf("bob is %s: %q", out.State, out.Why)
	}
	in15("bob was unreachable", frozen, *out.Since)
	c, err := w.api(alice)
	if err != nil {
		t.Fatal(err)
	}
	var node corev1.Node
	if err := c.Get(t.Context(), client.ObjectKey{Name: "kith-bob"}, &node); err != nil {
		t.Fatal(err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status != corev1.ConditionFalse {
			t.Errorf("%+v", condition)
		}
		in15("the node was NotReady", frozen, condition.LastTransitionTime)
	}
	if atHome, err = w.pods(alice, "shop", web); err != nil {
		t.Fatal(err)
	}
	for _, p := range atHome {
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady && p.Spec.NodeName == "kith-bob" {
				in15("a pod was not Ready", frozen, condition.LastTransitionTime)
			}
		}
	}
	thaw(bob)

	freeze(alice)
	took := eventually(t, 30*time.Second, "alice's endpoints at bob are not ready", func() string {
		return w.onlyReady(bob, twin, func(address string) bool { return slices.Contains(guests, address) })
	})
	t.Logf("alice's endpoints at bob were not ready %s after she stood still", took.Round(10*time.Millisecond))
	thaw(alice)
}
