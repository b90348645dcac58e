//go:build lab

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// stays is more than twice as long as it takes to fall asleep in these stories.
const stays = 22 * time.Second

// TestAKubernetesSleeps: an engine that nobody needs ends with all that belongs to it, and whoever comes waits and is answered. Alice has a contract
// with bob, whose engine sleeps, too, until a pod of hers goes there.
func TestAKubernetesSleeps(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Config: map[string]any{"engineIdle": "10s"}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob)
	if out, _, err := alice.Exec(t.Context(), "sh", "-c", "umask 077; kith kubeconfig > /root/front.yaml"); err != nil {
		t.Fatal(out, err)
	}
	front := func(args string) (string, error) {
		out, stderr, err := alice.Exec(t.Context(), "sh", "-c", "KUBECONFIG=/root/front.yaml "+strings.Join(alice.KubectlCommand(), " ")+" "+args)
		return out + stderr, err
	}
	t.Run("nothing of it runs", func(t *testing.T) {
		asleep(t, alice)
		eventually(t, time.Minute, "its programs have ended", func() string {
			if out, _, err := alice.Exec(t.Context(), "pidof", "kith-k8s", "containerd"); err == nil {
				return "they run: " + out
			}
			return ""
		})
		if out, _, err := alice.Exec(t.Context(), "sh", "-c", "grep VmRSS /proc/$(pidof kithd)/status"); err == nil {
			t.Log("kithd: " + strings.TrimSpace(out))
		}
	})
	t.Run("what kithd knows it says without waking it", func(t *testing.T) {
		for _, ask := range []string{"status", "peers", "events", "share", "requests"} {
			kith(t, alice, ask)
		}
		if got := engineState(t, alice); got != api.EngineAsleep {
			t.Errorf("it is %s", got)
		}
	})
	t.Run("kubectl through the front door", func(t *testing.T) {
		asleep(t, alice)
		began := time.Now()
		if out, err := front("get namespaces"); err != nil || !strings.Contains(out, "kube-system") {
			t.Errorf("%v\n%s", err, out)
		}
		t.Logf("answered after %s", time.Since(began).Round(100*time.Millisecond))
	})
	t.Run("ten at once", func(t *testing.T) {
		asleep(t, alice)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if out, err := front(fmt.Sprintf("create configmap made-%d --from-literal=n=%d", i, i)); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		all.Wait()
		if out, err := front("get configmaps -o name"); err != nil || strings.Count(out, "made-") != 10 {
			t.Error(out, err)
		}
	})
	for name, kubeconfig := range map[string]string{"a watch keeps it awake": "/root/front.yaml", "a watch past the front door keeps it awake": lab.Kubeconfig} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, _, err := alice.Exec(ctx, "sh", "-c", "KUBECONFIG="+kubeconfig+" exec "+strings.Join(alice.KubectlCommand(), " ")+" get configmaps -w")
				ended <- err
			}()
			select {
			case err := <-ended:
				t.Errorf("the watch ended: %v", err)
			case <-time.After(stays):
			}
			if got := engineState(t, alice); got != api.EngineReady {
				t.Errorf("it is %s", got)
			}
			cancel()
			<-ended
		})
	}
	t.Run("a peer that sleeps", func(t *testing.T) {
		asleep(t, bob)
		eventually(t, 20*time.Second, "alice knows that bob's Kubernetes sleeps", func() string {
			if p := peerOf(t, alice, "bob"); !p.Asleep || !p.Reachable {
				return fmt.Sprintf("%+v", p)
			}
			return ""
		})
		const ready = `get node kith-bob -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Ready")].reason}'`
		eventually(t, 20*time.Second, "the node that stands for bob says so, and is ready", func() string {
			if out, err := front(ready); err != nil || out != "True PeerAsleep" {
				return fmt.Sprint(out, err)
			}
			return ""
		})
		for _, p := range []*lab.Laptop{alice, bob} {
			asleep(t, p)
		}
		time.Sleep(stays)
		for _, p := range []*lab.Laptop{alice, bob} {
			if got := engineState(t, p); got != api.EngineAsleep {
				t.Errorf("%s is %s; who woke it is in its log", p.Name(), got)
			}
		}
	})
	t.Run("a pod wakes home and peer, and they sleep when it has gone", func(t *testing.T) {
		if out, err := front("create namespace shop"); err != nil {
			t.Fatal(out, err)
		}
		kith(t, alice, "offload", "shop")
		apply(t, alice, solo("away", "kith-bob"))
		waitReady(t, alice, 1, "-n", "shop")
		if out, err := front("-n shop exec away -- /app get http://127.0.0.1:8080/"); err != nil || !strings.Contains(out, "away") {
			t.Error(out, err)
		}
		time.Sleep(stays)
		for _, p := range []*lab.Laptop{alice, bob} {
			if got := engineState(t, p); got != api.EngineReady {
				t.Errorf("%s is %s while the pod runs", p.Name(), got)
			}
		}
		kubectl(t, alice, "-n", "shop", "delete", "pod", "away")
		for _, p := range []*lab.Laptop{alice, bob} {
			asleep(t, p)
		}
	})
}

func engineState(t *testing.T, p *lab.Laptop) api.EngineState {
	t.Helper()
	var s api.Status
	if err := json.Unmarshal([]byte(kith(t, p, "status", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s.Engine.State
}

// asleep waits until the engine of a laptop sleeps.
func asleep(t *testing.T, p *lab.Laptop) {
	t.Helper()
	eventually(t, 2*time.Minute, p.Name()+"'s Kubernetes sleeps", func() string {
		if got := engineState(t, p); got != api.EngineAsleep {
			return string(got)
		}
		return ""
	})
}
