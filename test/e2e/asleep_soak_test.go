//go:build lab && soak

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestAKubernetesSleepsAndWakesAtRandom: two hundred times around the moment in which an engine falls asleep or wakes up, somebody needs it, or
// a part of the laptop dies. Nothing that was made is lost, and no request fails; it waits.
func TestAKubernetesSleepsAndWakesAtRandom(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Config: map[string]any{"engineIdle": "10s"}})
	for _, p := range l.Laptops() {
		t.Run(p.Name(), func(t *testing.T) {
			t.Parallel()
			sleepsAtRandom(t, p, 100)
		})
	}
}

func sleepsAtRandom(t *testing.T, p *lab.Laptop, rounds int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kubectl := strings.Join(p.KubectlCommand(), " ")
	sh := func(script string) {
		t.Helper()
		out, stderr, err := p.Exec(t.Context(), "timeout", "120", "sh", "-c", script)
		if err != nil {
			t.Errorf("%s: %v\n%s%s", script, err, out, stderr)
		}
	}
	sh("umask 077; kith kubeconfig > /root/front.yaml")
	made, slept := 0, 0
	create := func() {
		sh(fmt.Sprintf("KUBECONFIG=/root/front.yaml %s create configmap made-%d --from-literal=x=y", kubectl, made))
		made++
	}
	const front = "KUBECONFIG=/root/front.yaml"
	home := func() {
		t.Helper()
		eventually(t, 2*time.Minute, "the front door leads home", func() string {
			if out, _, err := p.Exec(t.Context(), "sh", "-c", front+" "+kubectl+" get ns"); err != nil {
				return instead(out)
			}
			return ""
		})
	}
	for round := range rounds {
		// Asleep after ten quiet seconds, and down a second later: before, in between and after.
		time.Sleep(time.Duration(8000+random.IntN(8000)) * time.Millisecond)
		if engineState(t, p) == api.EngineAsleep {
			slept++
		}
		what := random.IntN(8)
		switch what {
		case 0, 1:
			create()
		case 2: // kubectl itself waits no longer than ten seconds for TLS: on a busy machine an engine takes longer to start
			sh(fmt.Sprintf("for i in 1 2 3; do out=$(%s create configmap made-%d --from-literal=x=y 2>&1) && exit; case $out in (*'TLS handshake timeout'*) ;; (*) break;; esac; done; echo $out; exit 1", kubectl, made))
			made++
		case 3:
			sh(front + " " + kubectl + " get pods,configmaps -A")
		case 4:
			sh(front + " timeout 3 " + kubectl + " get configmaps -w; true")
			create()
		case 5:
			sh(fmt.Sprintf("kith share %d%%", 10+random.IntN(80)))
		case 6: // kithd dies while it sleeps, or as it wakes up
			go func() { _, _, _ = p.Exec(t.Context(), "sh", "-c", "KUBECONFIG=/root/front.yaml "+kubectl+" get ns") }()
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			if err := p.KillDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.StartDaemon(t.Context()); err != nil {
				t.Fatal(err)
			}
			home()
		case 7: // power is lost
			go func() { _, _, _ = p.Exec(t.Context(), "sh", "-c", "KUBECONFIG=/root/front.yaml "+kubectl+" get ns") }()
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			if err := p.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.Boot(t.Context()); err != nil {
				t.Fatal(err)
			}
			home()
		}
		if t.Failed() {
			t.Fatalf("round %d, what %d", round, what)
		}
	}
	t.Logf("%d rounds, asleep at the begin of %d", rounds, slept)
	if slept < rounds/4 {
		t.Errorf("it slept in %d of %d rounds: what was to be tried was not", slept, rounds)
	}
	out, err := p.Kubectl(t.Context(), "get", "configmaps", "-o", "name")
	if got := strings.Count(out, "made-"); err != nil || got != made {
		t.Errorf("%d of %d that were made are there (%v)", got, made, err)
	}
}

// TestWhatWakesAKubernetesAndKeepsItAwake: also past the front door, for which kubectl has ten seconds of patience, pods, what is due at a
// time, peers, and power that is lost.
func TestWhatWakesAKubernetesAndKeepsItAwake(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Config: map[string]any{"engineIdle": "10s"}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	t.Run("ten at once, past the front door", func(t *testing.T) {
		asleep(t, alice)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if out, err := alice.Kubectl(t.Context(), "create", "configmap", fmt.Sprintf("made-%d", i)); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		all.Wait()
		if out := kubectl(t, alice, "get", "configmaps", "-o", "name"); strings.Count(out, "made-") != 10 {
			t.Error(out)
		}
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
