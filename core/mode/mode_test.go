package mode

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kith.dev/core/api"
)

func TestThereAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, pod("shop-1", "ReplicaSet"))
		l := w.begin(nil, 0, false)
		defer l.stop()
		l.settled(api.Autonomous)
		for range 3 {
			if err := <-l.tether(api.TetherOptions{}); err != nil {
				t.Fatal(err)
			}
			l.settled(api.Tethered)
			_, status := l.Status()
			if status.User != "kith:laptop:bbb" || !slices.Equal(status.Namespaces, []string{"team-a (edit)"}) {
				t.Errorf("%+v", status)
			}
			if id, joins := l.Company(); id != corpID || !joins {
				t.Errorf("company %q, joins %v", id, joins)
			}
			if err := <-l.untether(api.UntetherOptions{}, func(api.Progress) {}); err != nil {
				t.Fatal(err)
			}
			l.settled(api.Autonomous)
			if _, err := os.Stat(w.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the journal: %v", err)
			}
		}
	})
}

// Every effect of a switch is walked: the process dies before it, or right after it, and the next one on the same disk in the same world
// finishes the switch or takes it back.
func TestKilledAtEveryPoint(t *testing.T) {
	walkAll(t, false)
}

// The same with an error in the place of each death: of the disk, the API server, the engine or the company. The process goes on.
func TestAnErrorAtEveryPoint(t *testing.T) { walkAll(t, true) }

func walkAll(t *testing.T, stumbles bool) {
	seen := map[step]bool{}
	for _, way := range []walk{
		{"there", api.Tethered, false, stumbles}, {"back", api.Autonomous, false, stumbles}, {"back alone", api.Autonomous, true, stumbles},
	} {
		for _, after := range []bool{false, true} {
			for n := 1; ; n++ {
				reached := false
				t.Run(fmt.Sprintf("%s/%v/%d", way.name, after, n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { reached = killedAt(t, way, n, after, seen) })
				})
				if !reached {
					t.Logf("%s: %d points", way.name, n-1)
					break
				}
			}
		}
	}
	for s := range stages {
		if !seen[s] {
			t.Errorf("nobody died in the step %s", s)
		}
	}
}

// walk is a switch that is broken off: there or back, the latter with the company or without.
type walk struct {
	name     string
	to       api.Mode
	away     bool
	stumbles bool
}

func killedAt(t *testing.T, way walk, n int, after bool, seen map[step]bool) bool {
	w := newWorld(t, pod("shop-1", "ReplicaSet"), pod("logs-1", "DaemonSet"))
	l := w.begin(nil, 0, false)
	options := api.TetherOptions{LocalWorkloads: api.DrainWorkloads}
	if way.to == api.Autonomous {
		if err := <-l.tether(options); err != nil {
			t.Fatal(err)
		}
	}
	if way.away {
		w.cut()
		time.Sleep(time.Minute)
	}
	l.mu.Lock()
	l.dies, l.after, l.stumbles = l.effect+n, after, way.stumbles
	l.mu.Unlock()
	if way.to == api.Tethered {
		l.tether(options)
	} else {
		l.untether(api.UntetherOptions{}, func(api.Progress) {})
	}
	time.Sleep(10 * time.Minute)
	l.mu.Lock()
	reached := l.effect >= l.dies
	l.mu.Unlock()
	seen[l.at] = seen[l.at] || reached
	at := l.at
	if reached && !way.stumbles {
		l.stop()
		l = w.begin(nil, 0, false)
		time.Sleep(10 * time.Minute)
	}
	defer l.stop()
	if way.away {
		w.heal()
		time.Sleep(time.Minute)
	}
	mode, _ := l.Status()
	if mode != way.to && (!reached || at != "" && at != tethered) { // it was written down what the owner wants
		t.Errorf("after it was disturbed in %q it is %s", at, mode)
	}
	l.settled(mode)
	return reached
}
