//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/test/lab"
)

// TestGuestsAreKept has bob, who cannot know better, take away what is alice's; and API servers fail while pods start.
func TestGuestsAreKept(t *testing.T) {
	w := newWorld(t).spread(4)
	twin := twinAt(t, w.bob, "shop")
	guest := func() string {
		t.Helper()
		guests, err := w.guests()
		if err != nil || len(guests) == 0 {
			t.Fatalf("%d guests, %v", len(guests), err)
		}
		return guests[0].Name
	}
	for _, loss := range []struct {
		of      string
		sameUID bool // of the pods at home: they never notice
		happens func()
	}{
		{"a guest evicted", false, func() {
			name := guest()
			// Its home pod has failed, as on any node, and its Deployment makes another.
			defer func() {
				eventually(t, time.Minute, "it is evicted at home", func() string {
					if got := endOf(t, w.alice, name); !strings.HasPrefix(got, "Failed Evicted") {
						return instead(got)
					}
					return ""
				})
				kubectl(t, w.alice, "-n", "shop", "delete", "pod", name)
			}()
			eviction := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, name, twin)
			if out, err := w.bob.KubectlInput(t.Context(), strings.NewReader(eviction), "create", "--raw", "/api/v1/namespaces/"+twin+"/pods/"+name+"/eviction", "-f", "-"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}},
		{"a guest deleted by force", true, func() {
			kubectl(t, w.bob, "-n", twin, "delete", "pod", guest(), "--force", "--grace-period=0")
		}},
		{"all guests at once", true, func() {
			kubectl(t, w.bob, "-n", twin, "delete", "pods", "--all", "--wait=false")
		}},
		{"an OffloadedPod", true, func() {
			kubectl(t, w.bob, "-n", twin, "delete", "offloadedpod", guest(), "--wait=false")
		}},
		{"the twin namespace", true, func() {
			kubectl(t, w.bob, "delete", "namespace", twin, "--wait=false")
		}},
		{"the virtual node", false, func() {
			kubectl(t, w.alice, "delete", "node", "kith-bob")
		}},
		{"alice's API server, while pods start", false, func() { w.restart(8, w.alice) }},
		{"bob's API server, while pods start", false, func() { w.restart(4, w.bob) }},
	} {
		w.run(loss.of, func(t *testing.T) {
			before := w.uids()
			old, err := w.guests()
			if err != nil {
				t.Fatal(err)
			}
			loss.happens()
			took := eventually(t, 2*time.Minute, "consistent", func() string {
				now, err := w.guests()
				if err != nil || loss.sameUID && same(old, now) {
					return fmt.Sprint("nothing happened yet ", err)
				}
				return w.consistent()
			})
			if after := w.uids(); loss.sameUID && before != after {
				t.Errorf("the pods at home changed:\n%s\n%s", before, after)
			}
			t.Logf("consistent after %s", took.Round(10*time.Millisecond))
		})
	}
}

// restart gives web so many replicas, anew, and kills a laptop's API server while they start.
func (w *world) restart(replicas int, p *lab.Laptop) {
	w.webs = replicas
	apply(w.t, w.alice, web(replicas))
	kubectl(w.t, w.alice, "-n", "shop", "rollout", "restart", "deployment/web")
	time.Sleep(500 * time.Millisecond)
	w.kill(p, "kith-k8s")
}

// uids of the pods of shop at home.
func (w *world) uids() string {
	list, err := w.pods(w.alice, "shop")
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, p := range list {
		all = append(all, fmt.Sprint(p.Name, " ", p.UID))
	}
	return strings.Join(all, ", ")
}

func same(a, b []corev1.Pod) bool {
	by := map[string]bool{}
	for i := range a {
		by[string(a[i].UID)] = true
	}
	for i := range b {
		if !by[string(b[i].UID)] {
			return false
		}
	}
	return len(a) == len(b)
}
