//go:build lab && soak

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
	"kith.dev/test/treetest"
)

// TestALargeVolumeMovesThroughCutsAndCrashes moves two gigabytes in 100 000 files from home to bob, from there to carol, and home. On each way the link
// is cut, and kithd is killed at both ends.
func TestALargeVolumeMovesThroughCutsAndCrashes(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3})
	alice := l.Laptop("alice")
	for _, name := range []string{"bob", "carol"} {
		p := l.Laptop(name)
		eventually(t, 30*time.Second, "kithd of "+name+" is ready", func() string { return engineReady(t, p) })
		kith(t, p, "share", "--storage", "8Gi")
		befriend(t, alice, p, "--cpu", "300m", "--memory", "256Mi", "--pods", "10", "--storage", "5Gi")
	}
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop", "--volumes", "anywhere")
	apply(t, alice, strings.Replace(moving, "SIZE", "4Gi", 1))
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=store")
	if err := treetest.Fill(files(t, alice), 100_000, 2<<30, 1); err != nil {
		t.Fatal(err)
	}
	want := listed(t, files(t, alice))
	const claim = "shop/data-store-0"
	way := func(to, node string, from, into *lab.Laptop) {
		t.Helper()
		began := time.Now()
		kith(t, alice, "volume", "move", claim, "--to", to, "--no-wait")
		// cut at a third, and a crash of each end later, wherever the copy is then.
		arrived := func(file string) {
			t.Helper()
			eventually(t, 5*time.Minute, file+" is at "+to, func() string {
				folder := files(t, into)
				if folder == "" {
					return "no volume"
				}
				if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
					return err.Error()
				}
				return ""
			})
		}
		other := into
		if other == alice {
			other = from
		}
		arrived("many/100")
		if err := l.Cut(t.Context(), "alice", other.Name()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if err := l.Heal(t.Context(), "alice", other.Name()); err != nil {
			t.Fatal(err)
		}
		arrived("many/200")
		if err := from.KillDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		arrived("many/300")
		if err := into.KillDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 15*time.Minute, "it is at "+to, func() string {
			out, err := alice.Kith(t.Context(), "volumes", "-o", "json")
			if err != nil || strings.Contains(out, `"move"`) || to != "home" && !strings.Contains(out, fmt.Sprintf("%q", to)) {
				return fmt.Sprintf("%v %s", err, out)
			}
			return ""
		})
		if p := waitReady(t, alice, 1, "-n", "shop", "-l", "app=store")[0]; p.Spec.NodeName != node {
			t.Fatalf("its pod is at %s\n%s", p.Spec.NodeName, kubectl(t, alice, "-n", "shop", "get", "events"))
		}
		t.Logf("to %s: %s\n%s", to, time.Since(began).Round(time.Second), kubectl(t, alice, "-n", "shop", "get", "events", "--field-selector", "involvedObject.kind=PersistentVolumeClaim"))
		if differs := treetest.Differ(want, listed(t, files(t, into))); differs != "" {
			t.Fatal(differs)
		}
		eventually(t, time.Minute, "nothing is left at "+from.Name(), func() string { return files(t, from) })
	}
	way("bob", "kith-bob", alice, l.Laptop("bob"))
	way("carol", "kith-carol", l.Laptop("bob"), l.Laptop("carol"))
	way("home", "alice", l.Laptop("carol"), alice)
}

// TestPostgresMovesUnderLoad moves the volume of PostgreSQL to the other laptop and back while pgbench writes to it from home. What was acknowledged is
// there.
func TestPostgresMovesUnderLoad(t *testing.T) {
	w := postgresOnAClaim(t, false)
	const lasts = 90 * time.Second
	w.app("client.yaml", "NAME", "load", "NODE", "alice", "COMMAND", fmt.Sprintf("bash /bench/bench.sh %d", int(lasts.Seconds())))
	ways := []string{"bob", "home"}
	if out := kubectl(t, w.alice, "-n", "shop", "get", "pod", "db-0", "-o", "jsonpath={.spec.nodeName}"); out == "kith-bob" {
		slices.Reverse(ways)
	}
	for _, to := range ways {
		time.Sleep(10 * time.Second)
		began := time.Now()
		t.Log(kith(t, w.alice, "volume", "move", "shop/data-db-0", "--to", to))
		eventually(t, 3*time.Minute, "the database is ready", func() string { return w.appReady("db", 1) })
		t.Logf("to %s: %s", to, time.Since(began).Round(100*time.Millisecond))
	}
	w.acknowledged("load", lasts)
}
