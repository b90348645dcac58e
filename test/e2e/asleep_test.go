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

// TestAKubernetesSleeps: an engine that nobody needs ends with all that belongs to it; whoever comes waits and is answered, however he
// comes; and what is due at a time is done in time.
func TestAKubernetesSleeps(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Config: map[string]any{"engineIdle": "10s"}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
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
	t.Run("ten at once, past the front door too", func(t *testing.T) {
		asleep(t, alice)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				create := fmt.Sprintf("create configmap made-%d --from-literal=n=%d", i, i)
				if i%2 == 0 {
					if out, err := front(create); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				} else if out, err := alice.Kubectl(t.Context(), strings.Fields(create)...); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		all.Wait()
		if out := kubectl(t, alice, "get", "configmaps", "-o", "name"); strings.Count(out, "made-") != 10 {
			t.Error(out)
		}
	})
	t.Run("a watch keeps it awake", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, _, err := alice.Exec(ctx, "sh", "-c", "KUBECONFIG=/root/front.yaml exec "+strings.Join(alice.KubectlCommand(), " ")+" get configmaps -w")
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
	t.Run("a pod keeps it awake", func(t *testing.T) {
		asleep(t, alice)
		kubectl(t, alice, "create", "namespace", "shop")
		apply(t, alice, solo("web", "alice"))
		waitReady(t, alice, 1, "-n", "shop")
		time.Sleep(stays)
		if got := engineState(t, alice); got != api.EngineReady {
			t.Errorf("it is %s", got)
		}
		kubectl(t, alice, "delete", "namespace", "shop")
	})
	t.Run("a CronJob runs in time", func(t *testing.T) {
		apply(t, alice, `apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: default}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: report, image: "kith.dev/echo:1", imagePullPolicy: IfNotPresent, command: [/bin/cat, /etc/hosts]}]
`)
		asleep(t, alice)
		due := time.Now().Truncate(time.Minute).Add(time.Minute)
		time.Sleep(time.Until(due.Add(20 * time.Second)))
		out := kubectl(t, alice, "get", "pods", "--sort-by=metadata.creationTimestamp", "-o", "jsonpath=none {.items[*].metadata.creationTimestamp}")
		all := strings.Fields(out)
		made, err := time.Parse(time.RFC3339, all[len(all)-1])
		if err != nil {
			t.Fatalf("no pod of the CronJob: %s", out)
		}
		if late := made.Sub(due); late < 0 || late > 10*time.Second {
			t.Errorf("it ran %s after it was due", late)
		}
		kubectl(t, alice, "delete", "cronjob", "report")
	})
	t.Run("a peer that asks wakes it, and a contract keeps it awake", func(t *testing.T) {
		asleep(t, alice)
		asleep(t, bob)
		befriend(t, bob, alice, "--cpu", "200m", "--memory", "128Mi", "--pods", "4")
		time.Sleep(stays)
		for _, p := range []*lab.Laptop{alice, bob} {
			if got := engineState(t, p); got != api.EngineReady {
				t.Errorf("%s's is %s", p.Name(), got)
			}
		}
		kith(t, bob, "unpeer", "alice", "--yes")
		asleep(t, alice)
	})
	t.Run("a laptop that loses power in its sleep", func(t *testing.T) {
		asleep(t, alice)
		if err := alice.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := alice.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if out := kubectl(t, alice, "get", "configmaps", "-o", "name"); strings.Count(out, "made-") != 10 {
			t.Error(out)
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
