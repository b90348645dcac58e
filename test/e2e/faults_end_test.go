//go:build lab && soak

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

// bare is a pod without a controller that prefers bob; nobody but Kith would make it again.
const bare = `
apiVersion: v1
kind: Pod
metadata: {name: bare, namespace: shop, labels: {app: bare}}
spec:
  terminationGracePeriodSeconds: 5
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - {weight: 100, preference: {matchExpressions: [{key: kith.dev/virtual, operator: Exists}]}}
  containers:
  - {name: echo, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 10m, memory: 16Mi}},
     readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
`

// TestUnpeerAtBadMoments ends the peering when it is least convenient. Whoever does it, all pods run at home in the
// end, and nothing is left of it on either side.
func TestUnpeerAtBadMoments(t *testing.T) {
	w := newWorld(t)
	kith(t, w.alice, "unpeer", "bob", "--yes")
	both := []*lab.Laptop{w.alice, w.bob}
	for _, bad := range []struct {
		moment  string
		rollout bool // the pods are still starting
		who     []*lab.Laptop
		cut     bool
		during  func() // happens half a second after
	}{
		{"alice, during a rollout", true, both[:1], false, nil},
		{"bob, during a rollout", true, both[1:], false, nil},
		{"both at once", false, both, false, nil},
		{"alice, while the link is cut", false, both[:1], true, nil},
		{"bob, while the link is cut", false, both[1:], true, nil},
		{"both, while the link is cut", false, both, true, nil},
		{"alice, whose kithd is killed on the way", false, both[:1], false, func() { w.kill(w.alice, "kithd") }},
		{"alice, while bob's kithd is killed", false, both[:1], false, func() { w.kill(w.bob, "kithd") }},
		{"bob, whose kithd is killed on the way", false, both[1:], false, func() { w.kill(w.bob, "kithd") }},
		{"alice, whose API server is killed on the way", false, both[:1], false, func() { w.kill(w.alice, "kith-k8s") }},
		{"bob, whose power fails on the way", false, both[1:], false, func() { w.reboot(w.bob) }},
	} {
		w.run(bad.moment, func(t *testing.T) {
			befriend(t, w.alice, w.bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
			w.webs = 6
			apply(t, w.alice, bare)
			apply(t, w.alice, web(w.webs))
			if bad.rollout {
				eventually(t, 30*time.Second, "a guest is there", func() string {
					if g, err := w.guests(); err != nil || len(g) == 0 {
						return fmt.Sprint("no guest yet ", err)
					}
					return ""
				})
			} else {
				waitReady(t, w.alice, 1, "-n", "shop", "-l", "app=bare")
				w.spread(w.webs)
			}
			if bad.cut {
				if err := w.l.Cut(t.Context(), "alice", "bob"); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			asked := w.unpeer(bad.who)
			if bad.during != nil {
				time.Sleep(500 * time.Millisecond)
				bad.during()
			}
			asked()
			t.Logf("who asked was answered after %s", time.Since(began).Round(100*time.Millisecond))
			if bad.cut {
				for _, p := range bad.who {
					eventually(t, 10*time.Second, p.Name()+" is done with it", func() string { return w.done(p) })
				}
				if err := w.l.Heal(t.Context(), "alice", "bob"); err != nil {
					t.Fatal(err)
				}
			}
			took := eventually(t, 90*time.Second, "it is over", func() string {
				for _, p := range both {
					if not := w.done(p); not != "" {
						return not
					}
				}
				return w.atHome()
			})
			t.Logf("all over %s later", took.Round(100*time.Millisecond))
			kubectl(t, w.alice, "-n", "shop", "delete", "deployment/web", "pod/bare", "--wait=true")
			eventually(t, 30*time.Second, "shop is empty", func() string {
				list, err := w.pods(w.alice, "shop")
				if err != nil || len(list) > 0 {
					return fmt.Sprintf("%d pods, %v", len(list), err)
				}
				return ""
			})
		})
	}
}

// TestOffloadDuringACut brings a namespace home, and lets it go again, while its peer cannot be reached.
func TestOffloadDuringACut(t *testing.T) {
	w := newWorld(t)
	apply(t, w.alice, bare)
	waitReady(t, w.alice, 1, "-n", "shop", "-l", "app=bare")
	w.spread(4)
	eventually(t, 20*time.Second, "consistent", w.consistent)
	if err := w.l.Cut(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := w.alice.Kith(t.Context(), "unoffload", "shop", "--timeout", "3m")
		answered <- err
	}()
	w.run("replacements run at home at once", func(t *testing.T) {
		eventually(t, 20*time.Second, "web runs at home", func() string {
			if at := w.places("web"); strings.Count(at, "alice") != w.webs || strings.Contains(at, "not ready") {
				return instead(at)
			}
			return ""
		})
	})
	w.run("what must not run twice waits", func(t *testing.T) {
		time.Sleep(15 * time.Second) // longer than one attempt to bring it home
		if at := w.places("bare"); at != "kith-bob (leaving)" {
			t.Errorf("bare: %s", at)
		}
		select {
		case err := <-answered:
			t.Errorf("kith unoffload is done, %v, but nobody knows what runs at bob", err)
		default:
		}
	})
	if err := w.l.Heal(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	healed := time.Now()
	if err := <-answered; err != nil {
		t.Fatalf("kith unoffload: %v", err)
	}
	t.Logf("kith unoffload was done %s after the link healed", time.Since(healed).Round(100*time.Millisecond))
	eventually(t, 30*time.Second, "all is at home", func() string {
		var twins corev1.NamespaceList
		if err := w.list(w.bob, &twins, client.HasLabels{v1alpha1.LabelConsumer}); err != nil || len(twins.Items) > 0 {
			return fmt.Sprintf("bob has %d twins, %v", len(twins.Items), err)
		}
		return w.atHome()
	})

	if err := w.l.Cut(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	kith(t, w.alice, "offload", "shop")
	w.webs = 8
	apply(t, w.alice, web(w.webs)) // the node still counts as Ready, so some are bound to it
	eventually(t, 10*time.Second, "pods are bound to bob", func() string {
		if at := w.places("web"); !strings.Contains(at, "kith-bob") {
			return instead(at)
		}
		return ""
	})
	time.Sleep(5 * time.Second)
	if err := w.l.Heal(t.Context(), "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, time.Minute, "consistent", w.consistent)
	t.Logf("consistent %s after the link healed", took.Round(10*time.Millisecond))
}

// TestForgottenPeer has kubectl delete the Peer under a contract in force, on either side.
func TestForgottenPeer(t *testing.T) {
	w := newWorld(t)
	for _, p := range []*lab.Laptop{w.alice, w.bob} {
		other := map[string]string{"alice": "bob", "bob": "alice"}[p.Name()]
		w.run("by "+p.Name(), func(t *testing.T) {
			if p == w.bob {
				befriend(t, w.alice, w.bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "20")
			}
			apply(t, w.alice, bare)
			waitReady(t, w.alice, 1, "-n", "shop", "-l", "app=bare")
			w.spread(4)
			kubectl(t, p, "delete", "peer", other)
			took := eventually(t, time.Minute, "it is over", func() string {
				for _, p := range []*lab.Laptop{w.alice, w.bob} {
					if not := w.done(p); not != "" {
						return not
					}
				}
				return w.atHome()
			})
			t.Logf("all over after %s", took.Round(100*time.Millisecond))
			kubectl(t, w.alice, "-n", "shop", "delete", "deployment/web", "pod/bare", "--wait=true")
		})
	}
}

// unpeer has these ask for the end at the same time. The function it gives waits for their answers; that one of them
// lost its daemon meanwhile is no failure.
func (w *world) unpeer(who []*lab.Laptop) func() {
	var asked sync.WaitGroup
	for _, p := range who {
		other := map[string]string{"alice": "bob", "bob": "alice"}[p.Name()]
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), 80*time.Second)
			defer cancel()
			if out, err := p.Kith(ctx, "unpeer", other, "--yes"); err != nil {
				w.t.Logf("%s: kith unpeer: %v %s", p.Name(), err, out)
			}
		})
	}
	return asked.Wait
}

func (w *world) kill(p *lab.Laptop, program string) {
	w.t.Helper()
	if _, _, err := p.Exec(w.t.Context(), "kill", "-9", pid(w.t, p, program)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reboot(p *lab.Laptop) {
	w.t.Helper()
	if err := p.Kill(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	if err := p.Boot(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// done tells what a laptop still has of the peering.
func (w *world) done(p *lab.Laptop) string {
	list, err := peers(w.t, p)
	if err != nil {
		return err.Error()
	}
	for _, other := range list {
		if other.Outgoing != "none" || other.Incoming != "none" || other.Tunnel.Up || other.Node != "" || !other.DownSince.IsZero() {
			return fmt.Sprintf("%s: %+v", p.Name(), other)
		}
	}
	var adverts v1alpha1.AdvertisementList
	var contracts v1alpha1.ContractList
	var wanted v1alpha1.OffloadedPodList
	var twins corev1.NamespaceList
	var nodes corev1.NodeList
	for what, list := range map[string]struct {
		of      client.ObjectList
		options []client.ListOption
	}{
		"advertisements": {&adverts, nil}, "contracts": {&contracts, nil}, "OffloadedPods": {&wanted, nil},
		"twin namespaces": {&twins, []client.ListOption{client.HasLabels{v1alpha1.LabelConsumer}}},
		"virtual nodes":   {&nodes, []client.ListOption{client.HasLabels{v1alpha1.LabelPeer}}},
	} {
		if err := w.list(p, list.of, list.options...); err != nil {
			return err.Error()
		}
		n := len(adverts.Items) + len(contracts.Items) + len(wanted.Items) + len(twins.Items) + len(nodes.Items)
		if n > 0 {
			return fmt.Sprintf("%s has %d %s", p.Name(), n, what)
		}
	}
	return ""
}

// atHome tells what is not right unless web and bare run at alice, every pod of them once.
func (w *world) atHome() string {
	if at := w.places("bare"); at != "alice" {
		return "bare: " + at
	}
	if at := w.places("web"); at != strings.TrimPrefix(strings.Repeat(", alice", w.webs), ", ") {
		return "web: " + at
	}
	return ""
}
