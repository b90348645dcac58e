//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// written is what `load redis` says in the end.
type written struct {
	Client        string
	Acked, Failed int
	Errors        map[string]int
	Primaries     []string
	Gaps          []struct{ At, Ms float64 }
	Lost          int
	LostFrom      float64
	LostTo        float64
	Unknown       string
}

// longest is the longest gap between two writes.
func (r written) longest() (ms float64) {
	for _, g := range r.Gaps {
		ms = max(ms, g.Ms)
	}
	return ms
}

const redisNames = ".redis.shop.svc.cluster.local"

// primary asks one of Sentinel, at home, who the primary is.
func (w *world) primary() string {
	out, err := w.in("sentinel-0", "redis-cli", "-p", "26379", "--raw", "sentinel", "get-master-addr-by-name", "shop")
	if err != nil {
		return err.Error()
	}
	name, _, _ := strings.Cut(out, "\n")
	return strings.TrimSuffix(name, redisNames)
}

// redisWell tells what is not right unless there is one primary with five replicas that have all it has, and all of Sentinel agree.
func (w *world) redisWell() string {
	if not := w.appReady("redis", 6); not != "" {
		return not
	}
	said, err := w.in("sentinel-0", "bash", "/config/check.sh")
	if err != nil {
		return err.Error()
	}
	name, _, _ := strings.Cut(said, redisNames)
	if want := strings.Repeat(name+redisNames+" flags=master num-slaves=5 num-other-sentinels=2 \n", 3) + "master 5"; said != want {
		return said
	}
	return ""
}

// inBob has the primary at bob, by a failover that is planned, and gives its pod.
func (w *world) inBob() string {
	w.t.Helper()
	list, err := w.pods(w.alice, "shop", client.MatchingLabels{"app": "redis"})
	if err != nil {
		w.t.Fatal(err)
	}
	var there []string
	for i := range list {
		if list[i].Spec.NodeName == "kith-bob" {
			there = append(there, list[i].Name)
		}
	}
	if len(there) != 2 {
		w.t.Fatalf("at bob are %v, want two", there)
	}
	if out, err := w.in("sentinel-0", append([]string{"bash", "/config/prefer.sh"}, there...)...); err != nil {
		w.t.Fatalf("%v %s", err, out)
	}
	at := w.primary()
	eventually(w.t, time.Minute, "the primary is at bob", func() string {
		if at = w.primary(); at == there[0] || at == there[1] {
			return ""
		}
		out, err := w.in("sentinel-0", "redis-cli", "-p", "26379", "sentinel", "failover", "shop")
		time.Sleep(3 * time.Second)
		return fmt.Sprintf("it is %s; %s %v", at, out, err)
	})
	eventually(w.t, 2*time.Minute, "all follow it", w.redisWell)
	return at
}

// TestRedisWithSentinelAtHomeAndAbroad runs six of Redis and three of Sentinel at home and at bob, with a writer on each side that
// asks Sentinel where to write, and has the daemons killed, the primary die, and the link cut.
func TestRedisWithSentinelAtHomeAndAbroad(t *testing.T) {
	w := newAppsWorld(t)
	w.app("redis.yaml")
	eventually(t, 2*time.Minute, "redis is ready", func() string { return w.appReady("redis", 6) })
	w.app("sentinel.yaml")
	eventually(t, 2*time.Minute, "sentinel is ready", func() string { return w.appReady("sentinel", 3) })
	took := eventually(t, time.Minute, "all is well", w.redisWell)
	t.Logf("well %s after all were ready", took.Round(100*time.Millisecond))
	said, _ := w.in("sentinel-0", "bash", "/config/check.sh")
	t.Logf("redis: %s; sentinel: %s\n%s\n%s", w.places("redis"), w.places("sentinel"), said, kubectl(t, w.alice, "-n", "shop", "get", "pods", "-o", "wide"))

	// during has a writer on each side while something happens, and gives what they say: of home, and of bob.
	during := func(t *testing.T, lasts time.Duration, happen func()) (home, bob written) {
		t.Helper()
		for name, node := range map[string]string{"writer-home": "alice", "writer-bob": "kith-bob"} {
			manifest := loading(name, node, "Never", "redis", "-rate", "50", "-timeout", "2s", "-duration", lasts.String(), "shop@sentinel.shop.svc.cluster.local:26379")
			apply(t, w.alice, strings.Replace(manifest, `image: "kith.dev/load:1",`,
				`image: "kith.dev/load:1", env: [{name: REDISCLI_AUTH, valueFrom: {secretKeyRef: {name: redis, key: password}}}],`, 1))
		}
		time.Sleep(6 * time.Second)
		happen()
		w.reported("writer-home", lasts+2*time.Minute, &home)
		w.reported("writer-bob", lasts+2*time.Minute, &bob)
		if home.Unknown != "" || bob.Unknown != "" || home.Acked == 0 || bob.Acked == 0 {
			t.Errorf("home %+v; bob %+v", home, bob)
		}
		return home, bob
	}

	w.run("kithd is killed on both sides", func(t *testing.T) {
		primary := w.inBob()
		before := w.restarts("redis") + w.restarts("sentinel")
		lasts := minutes(1)
		home, bob := during(t, lasts+10*time.Second, func() { w.killBoth(lasts) })
		if now := w.primary(); now != primary {
			t.Errorf("the primary was %s, is %s: Sentinel took a moment without kithd for its death", primary, now)
		}
		for _, r := range []written{home, bob} {
			if r.Lost > 0 || r.longest() > 6000 {
				t.Errorf("%+v", r)
			}
		}
		if bob.Failed > 0 {
			t.Errorf("writes at bob to bob failed: %+v", bob)
		}
		eventually(t, 30*time.Second, "all is well", w.redisWell)
		if after := w.restarts("redis") + w.restarts("sentinel"); after != before {
			t.Errorf("containers were %s, are %s", before, after)
		}
	})
	w.run("the primary at bob dies", func(t *testing.T) {
		primary := w.inBob()
		home, bob := during(t, 50*time.Second, func() {
			kubectl(t, w.alice, "-n", "shop", "delete", "pod", primary, "--grace-period=0", "--force")
			began := time.Now()
			eventually(t, 40*time.Second, "another is chosen", func() string {
				if now := w.primary(); now == primary || !strings.HasPrefix(now, "redis-") {
					return instead(now)
				}
				return ""
			})
			t.Logf("failover to %s %s after %s was deleted", w.primary(), time.Since(began).Round(100*time.Millisecond), primary)
		})
		for _, r := range []written{home, bob} {
			if r.Lost > 100 || r.longest() > 25_000 {
				t.Errorf("%+v", r)
			}
		}
		took := eventually(t, time.Minute, "all is well, with the one that died as a replica", w.redisWell)
		t.Logf("all well %s after the writers were done", took.Round(100*time.Millisecond))
	})
	w.run("the link is cut while the primary is at bob", func(t *testing.T) {
		primary := w.inBob()
		home, bob := during(t, 90*time.Second, func() {
			if err := w.l.Cut(t.Context(), "alice", "bob"); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			eventually(t, 45*time.Second, "another is chosen at home", func() string {
				if now := w.primary(); now == primary || !strings.HasPrefix(now, "redis-") {
					return instead(now)
				}
				return ""
			})
			t.Logf("failover to %s %s after the cut", w.primary(), time.Since(began).Round(100*time.Millisecond))
			time.Sleep(time.Until(began.Add(45 * time.Second)))
			if err := w.l.Heal(t.Context(), "alice", "bob"); err != nil {
				t.Fatal(err)
			}
			took := eventually(t, time.Minute, "all is well after the heal", w.redisWell)
			t.Logf("all well %s after the heal", took.Round(100*time.Millisecond))
		})
		// What bob's side took in the seconds until it noticed that it is alone is lost, as with any Redis (min-replicas-max-lag).
		if home.Lost > 0 && home.LostTo-home.LostFrom > 10 || bob.LostTo-bob.LostFrom > 12 {
			t.Errorf("lost more than the seconds until the primary noticed: home %+v; bob %+v", home, bob)
		}
		if home.longest() > 30_000 {
			t.Errorf("at home no writes for long: %+v", home)
		}
	})
}
