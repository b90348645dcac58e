//go:build lab && soak

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/test/lab"
)

// TestTwentyFaults lets twenty things go wrong one after the other, some before the last one was got over. KITH_SEED
// repeats a run, KITH_FAULTS makes it longer.
func TestTwentyFaults(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("KITH_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	many, err := strconv.Atoi(os.Getenv("KITH_FAULTS"))
	if err != nil {
		many = 20
	}
	t.Logf("KITH_SEED=%d", seed)
	w := newWorld(t).spread(6)
	apply(t, w.alice, hasty("Deployment", "hasty"))
	apply(t, w.alice, hasty("StatefulSet", "ordered"))
	eventually(t, 30*time.Second, "consistent before all", w.consistent)

	r := chance{rand.New(rand.NewPCG(seed, 0)), w}
	began := time.Now()
	for n := range many {
		what := r.fault()
		t.Logf("%5.1f s: fault %d: %s", time.Since(began).Seconds(), n+1, what)
		time.Sleep(r.upTo(4 * time.Second))
	}
	r.mend()
	took := eventually(t, 90*time.Second, "consistent after all", func() string {
		for _, app := range []string{"hasty", "ordered"} {
			if at := w.places(app); at != "alice" && at != "kith-bob" {
				return app + ": " + at
			}
		}
		return w.consistent()
	})
	t.Logf("consistent %s after the last fault, KITH_SEED=%d", took.Round(10*time.Millisecond), seed)
}

// chance makes faults.
type chance struct {
	*rand.Rand
	w *world
}

func (r chance) upTo(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// fault lets something go wrong and says what. What it does it does completely: the next one finds two laptops that
// are on.
func (r chance) fault() string {
	w := r.w
	ctx, t := w.t.Context(), w.t
	p := []*lab.Laptop{w.alice, w.bob}[r.IntN(2)]
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	kinds := []func() string{
		func() string {
			d := r.upTo(30 * time.Second)
			must(w.l.Cut(ctx, "alice", "bob"))
			time.Sleep(d)
			must(w.l.Heal(ctx, "alice", "bob"))
			return fmt.Sprintf("the link was cut for %s", d.Round(time.Millisecond))
		},
		func() string {
			must(p.Kill(ctx))
			time.Sleep(r.upTo(3 * time.Second))
			must(p.Boot(ctx))
			return p.Name() + " lost its power and is on again"
		},
		func() string { return r.killed(p, "kithd") },
		func() string { return r.killed(p, "kith-k8s") },
		func() string { return r.killed(p, "containerd") },
		func() string {
			d := r.upTo(25 * time.Second)
			must(p.Freeze(ctx))
			time.Sleep(d)
			must(p.Thaw(ctx))
			return fmt.Sprintf("%s slept for %s", p.Name(), d.Round(time.Millisecond))
		},
		func() string {
			to, err := p.Move(ctx, netip.Addr{})
			must(err)
			return fmt.Sprintf("%s moved to %s", p.Name(), to)
		},
		func() string { return r.deleted(p) },
		func() string { return r.deleted(p) },
		func() string {
			must(p.RestartDaemon(ctx))
			return "kithd of " + p.Name() + " was restarted"
		},
		func() string {
			w.webs = 4 + r.IntN(5)
			out, err := w.alice.Kubectl(ctx, "-n", "shop", "scale", "deployment/web", fmt.Sprint("--replicas=", w.webs))
			if err != nil { // the API server is away; mend does it
				out = err.Error()
			}
			return fmt.Sprintf("web shall have %d pods: %.40q", w.webs, out)
		},
	}
	return kinds[r.IntN(len(kinds))]()
}

func (r chance) killed(p *lab.Laptop, program string) string {
	out, _, err := p.Exec(r.w.t.Context(), "sh", "-c", "kill -9 $(pidof -s "+program+")")
	if err != nil {
		return program + " of " + p.Name() + " was to be killed, but does not run " + out
	}
	return program + " of " + p.Name() + " was killed"
}

// deleted has some pods deleted: at alice by their owner, at bob by his, who cannot know better.
func (r chance) deleted(p *lab.Laptop) string {
	list, err := r.w.pods(p, "", client.MatchingLabels{"app": "web"})
	if err != nil || len(list) == 0 {
		return fmt.Sprintf("no pods could be deleted at %s: %v", p.Name(), err)
	}
	args := []string{"-n", list[0].Namespace, "delete", "pod", "--wait=false"} // the twin has another name than shop
	if r.IntN(3) == 0 {
		args = append(args, "--force", "--grace-period=0")
	}
	for range 1 + r.IntN(3) {
		args = append(args, list[r.IntN(len(list))].Name)
	}
	if _, err := p.Kubectl(r.w.t.Context(), args...); err != nil {
		return fmt.Sprintf("no pods could be deleted at %s: %v", p.Name(), err)
	}
	return fmt.Sprintf("%s: kubectl %s", p.Name(), strings.Join(args, " "))
}

// mend makes sure that what was ordered arrived.
func (r chance) mend() {
	w := r.w
	eventually(w.t, 30*time.Second, "web has its number", func() string {
		if _, err := w.alice.Kubectl(w.t.Context(), "-n", "shop", "scale", "deployment/web", fmt.Sprint("--replicas=", w.webs)); err != nil {
			return err.Error()
		}
		return ""
	})
}
