//go:build lab && soak

package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestALongRunGrowsNothing has the same load round after round: namespaces with a pod abroad come and go, a Deployment on both laptops is
// rolled out, an owner changes what is shared, and connections pass. After a third of the time nothing that the laptops keep grows any more.
// KITH_LONG makes it longer than twenty minutes.
func TestALongRunGrowsNothing(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("KITH_LONG"))
	if err != nil {
		long = 20 * time.Minute
	}
	w := newWorld(t).spread(4)
	kubectl(t, w.alice, "-n", "shop", "patch", "deployment/web", "-p", `{"spec":{"revisionHistoryLimit":2}}`) // of which each is a ReplicaSet
	laptops := []*lab.Laptop{w.alice, w.bob}
	seen := make([][]traces, len(laptops))
	rounds := 0
	for began := time.Now(); time.Since(began) < long && !t.Failed(); rounds++ {
		w.passing(40, 8)
		kubectl(t, w.alice, "-n", "shop", "rollout", "restart", "deployment/web")
		kubectl(t, w.alice, "-n", "shop", "rollout", "status", "deployment/web", "--timeout=2m")
		kith(t, w.bob, "share", fmt.Sprintf("%d%%", 60+rounds%20))
		kubectl(t, w.alice, "get", "pods,nodes,events", "-A")
		time.Sleep(10 * time.Second) // what ended just now is tidied away
		for i, p := range laptops {
			one, err := w.tracesOf(p)
			if err != nil {
				t.Fatal(err)
			}
			seen[i] = append(seen[i], one)
		}
	}
	if why := w.well(); why != "" {
		t.Error(why)
	}
	third := rounds / 3
	if third < 3 {
		t.Fatalf("%d rounds in %s are too few to see what grows", rounds, long)
	}
	for i, p := range laptops {
		middle, last := least(seen[i][third:2*third]), least(seen[i][2*third:])
		t.Logf("%s, %d rounds, in the middle and at the end:\n%s", p.Name(), rounds, middle.table(last))
		for _, what := range slices.Sorted(maps.Keys(last)) {
			if last[what] > middle[what]+allowed(what, middle[what])/4 {
				t.Errorf("%s: %s grows: %s", p.Name(), what, course(seen[i], what))
			}
		}
	}
}

// least gives the smallest of each trace: what is tidied away now and then is at one moment more than at another.
func least(all []traces) traces {
	is := maps.Clone(all[0])
	for _, one := range all[1:] {
		for what := range is {
			is[what] = min(is[what], one[what])
		}
		for what := range one {
			if _, before := is[what]; !before {
				is[what] = 0
			}
		}
	}
	return is
}

// course shows how a trace went.
func course(all []traces, what string) string {
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintf(&b, " %.0f", one[what])
	}
	return b.String()
}
