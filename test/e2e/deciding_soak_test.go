//go:build lab && soak

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// engineHas gives what a laptop's engine has: goroutines, and in MiB the heap at which it collects next, which follows from what was in
// use when it last did, and what is resident.
func engineHas(t *testing.T, p *lab.Laptop) (goroutines int, heap, memory float64) {
	t.Helper()
	values := map[string]float64{}
	for line := range strings.Lines(kubectl(t, p, "get", "--raw", "/metrics")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && (name == "go_goroutines" || name == "go_memstats_next_gc_bytes" || name == "process_resident_memory_bytes") {
			values[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return int(values["go_goroutines"]), values["go_memstats_next_gc_bytes"] / (1 << 20), values["process_resident_memory_bytes"] / (1 << 20)
}

// TestALaptopThatDoesNotDecide: the scheduler and the controllers that decide stop and start again while all else at bob goes on, and
// alice's guests start there all the same.
func TestALaptopThatDoesNotDecide(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "500m", "--memory", "512Mi", "--pods", "10")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	for _, name := range []string{"own", "old"} {
		kubectl(t, bob, "create", "namespace", name)
	}
	kubectl(t, bob, "-n", "old", "create", "configmap", "kept", "--from-literal=a=b")
	apply(t, bob, fmt.Sprintf(ofBobs, "first"))
	apply(t, alice, solo("early", "kith-bob"))
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=early")
	first := waitReady(t, bob, 1, "-n", "own", "-l", "app=first")[0]
	engine := pid(t, bob, "kith-k8s")
	state := func(what string) {
		goroutines, heap, memory := engineHas(t, bob)
		t.Logf("%s: %d goroutines, heap %.0f MiB, resident %.0f MiB", what, goroutines, heap, memory)
	}
	state("decides")

	apply(t, alice, fmt.Sprintf(laptopsOfTheCompany, true)) // whose key she knows
	tethered(t, bob, alice)
	for _, when := range []string{"tethered", "after a restart of kithd"} {
		if is, _ := deciding(t, bob); is {
			t.Fatalf("%s, and the engine decides", when)
		}
		if when == "tethered" {
			if err := bob.RestartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, 30*time.Second, "kithd of bob is ready", func() string { return engineReady(t, bob) })
		}
	}
	state("does not")

	t.Run("nothing is decided", func(t *testing.T) {
		apply(t, bob, fmt.Sprintf(ofBobs, "second"))
		kubectl(t, bob, "-n", "own", "create", "job", "third", "--image=kith.dev/echo:1")
		kubectl(t, bob, "-n", "own", "run", "fourth", "--image=kith.dev/echo:1")
	})
	t.Run("the house is kept", func(t *testing.T) {
		kubectl(t, bob, "delete", "namespace", "old", "--timeout=3m")
		kubectl(t, bob, "create", "namespace", "new")
		eventually(t, 20*time.Second, "a new namespace has its account and certificate", func() string {
			out, _ := bob.Kubectl(t.Context(), "-n", "new", "get", "serviceaccount/default", "configmap/kube-root-ca.crt", "-o", "name")
			if strings.Count(out, "\n") != 2 {
				return instead(out)
			}
			return ""
		})
		kubectl(t, bob, "-n", "own", "create", "quota", "pods", "--hard=pods=5")
		eventually(t, 20*time.Second, "a quota is counted", func() string {
			if used := kubectl(t, bob, "-n", "own", "get", "quota", "pods", "-o", "jsonpath={.status.used.pods}"); used != "2" {
				return instead(used)
			}
			return ""
		})
	})
	t.Run("guests start", func(t *testing.T) {
		apply(t, alice, solo("late", "kith-bob"))
		took := eventually(t, 30*time.Second, "a guest runs", func() string {
			if list := pods(t, alice, "-n", "shop", "-l", "app=late"); len(list) != 1 || !list[0].ready() {
				return fmt.Sprintf("%+v", list)
			}
			return ""
		})
		t.Logf("a guest is Ready after %s", took.Round(100*time.Millisecond))
		kubectl(t, bob, "taint", "node", "bob", "example.com/mine=x:NoSchedule")
		defer bob.Kubectl(context.WithoutCancel(t.Context()), "taint", "node", "bob", "example.com/mine-")
		apply(t, alice, solo("refused", "kith-bob"))
		const why = "0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: not eligible due to preemptionPolicy=Never."
		eventually(t, 30*time.Second, "home hears why a guest waits", func() string {
			out := kubectl(t, alice, "-n", "shop", "get", "events", "--field-selector", "involvedObject.name=refused,reason=FailedScheduling", "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(out, why) {
				return instead(out)
			}
			return ""
		})
		t.Log(kubectl(t, alice, "-n", "shop", "get", "pod", "refused", "-o", `jsonpath={.status.phase} {.status.conditions}`))
		kubectl(t, bob, "taint", "node", "bob", "example.com/mine-")
		eventually(t, 30*time.Second, "it starts when there is room", func() string {
			if list := pods(t, alice, "-n", "shop", "-l", "app=refused"); len(list) != 1 || !list[0].ready() {
				return fmt.Sprintf("%+v", list)
			}
			return ""
		})
	})
	t.Run("still nothing is decided", func(t *testing.T) {
		if out := kubectl(t, bob, "-n", "own", "get", "replicasets,pods", "-o", "name"); strings.Contains(out, "second") || strings.Contains(out, "third") || strings.Count(out, "\n") != 3 {
			t.Errorf("there are\n%s", out)
		}
		if node := kubectl(t, bob, "-n", "own", "get", "pod", "fourth", "-o", "jsonpath={.spec.nodeName}"); node != "" {
			t.Errorf("a pod of the owner's was put on %s", node)
		}
		kubectl(t, bob, "-n", "own", "delete", "pod", "fourth", "--now")
	})

	t.Run("many times", func(t *testing.T) { switches(t, bob) })

	if now := pid(t, bob, "kith-k8s"); now != engine {
		t.Errorf("the engine was started anew: %s, was %s", now, engine)
	}
	all := pods(t, bob, "-A")
	if !slices.ContainsFunc(all, func(p pod) bool { return p.Metadata.Name == first.Metadata.Name }) {
		t.Errorf("bob's own pod %s is gone", first.Metadata.Name)
	}
	for _, p := range all {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount != 0 {
				t.Errorf("%s/%s was restarted %d times", p.Metadata.Namespace, p.Metadata.Name, c.RestartCount)
			}
		}
	}

	t.Run("it stays off over a power loss", func(t *testing.T) {
		if err := bob.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := bob.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "bob is up again", func() string { return engineReady(t, bob) })
		if is, _ := deciding(t, bob); is {
			t.Error("it decides")
		}
		eventually(t, time.Minute, "alice has bob again", func() string {
			if p := peerOf(t, alice, "bob"); p.Outgoing != "connected" || !p.Tunnel.Up {
				return fmt.Sprintf("%+v", p)
			}
			return ""
		})
		apply(t, alice, solo("booted", "kith-bob"))
		waitReady(t, alice, 1, "-n", "shop", "-l", "app=booted")
		if taints := kubectl(t, bob, "get", "node", "bob", "-o", "jsonpath={.spec.taints}"); taints != "" {
			t.Logf("nobody takes these from the node: %s", taints)
		}
	})

	kith(t, bob, "untether", "--yes")
	ready := eventually(t, 30*time.Second, "what was written is done", func() string {
		if list := pods(t, bob, "-n", "own"); len(list) != 3 || slices.ContainsFunc(list, func(p pod) bool { return p.Spec.NodeName == "" }) {
			return fmt.Sprintf("%+v", list)
		}
		return ""
	})
	t.Logf("all pods have a node %s later", ready.Round(100*time.Millisecond))
	state("decides again")
}

// switches leaves it off. Neither goroutines nor memory may grow with the switches.
func switches(t *testing.T, p *lab.Laptop) {
	const warm, rounds = 5, 10
	var took [2][]time.Duration
	turn := func(rounds int) {
		for i := range rounds {
			for n, on := range []bool{true, false} {
				is, d := deciding(t, p, on)
				if is != on {
					t.Fatalf("told %t, it is %t", on, is)
				}
				took[n] = append(took[n], d)
				time.Sleep(time.Duration(i%5) * 300 * time.Millisecond) // also while it is starting
			}
		}
	}
	turn(warm)
	goroutines, heap, _ := engineHas(t, p)
	for range 5 { // what ended is collected, and connections that are not used are closed
		time.Sleep(time.Second)
		now, mib, _ := engineHas(t, p)
		goroutines, heap = min(goroutines, now), min(heap, mib)
	}
	turn(rounds)
	// Connections and the API server's own grow by some ten goroutines and then no more; two left by each switch, or the caches of a few,
	// would be more than that.
	eventually(t, 10*time.Second, fmt.Sprintf("%d switches leave nothing", 2*rounds), func() string {
		now, mib, memory := engineHas(t, p)
		if now > goroutines+4*rounds || mib > heap+40 {
			return fmt.Sprintf("%d goroutines, were %d; heap %.0f MiB, was %.0f; resident %.0f MiB", now, goroutines, mib, heap, memory)
		}
		return ""
	})
	for n, word := range []string{"on", "off"} {
		slices.Sort(took[n])
		t.Logf("%s: median %s, slowest %s", word, took[n][len(took[n])/2].Round(time.Millisecond), took[n][len(took[n])-1].Round(time.Millisecond))
	}
}
