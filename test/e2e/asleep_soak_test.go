//go:build lab && soak

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
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
