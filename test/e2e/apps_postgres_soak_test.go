//go:build lab && soak

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// figures are the NAME=NUMBER in what a client of the database said.
func figures(said string) map[string]float64 {
	all := map[string]float64{}
	for _, m := range regexp.MustCompile(`(\w+)=([0-9.]+)`).FindAllStringSubmatch(said, -1) {
		all[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	return all
}

// TestPostgresAbroadWhileDaemonsAreKilled runs PostgreSQL at bob under pgbench, from home and then from bob, while kithd is
// killed on both laptops each minute. KITH_MINUTES is how long each of the two takes.
func TestPostgresAbroadWhileDaemonsAreKilled(t *testing.T) {
	w := newAppsWorld(t)
	lasts := minutes(2)
	w.app("postgres.yaml")
	w.app("bench.yaml")
	eventually(t, 2*time.Minute, "the database is ready", func() string { return w.appReady("db", 1) })
	for _, command := range []string{"createdb -U postgres bench", "pgbench -i -q -s 10 -U postgres bench"} {
		if out, err := w.in("db-0", strings.Fields(command)...); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
	}
	before := w.restarts("db")
	bench := func(name, node string, lasts time.Duration, kills bool) map[string]float64 {
		t.Helper()
		if _, err := w.in("db-0", "psql", "-U", "postgres", "-c", "truncate pgbench_history", "bench"); err != nil {
			t.Fatal(err)
		}
		seconds := strconv.Itoa(int(lasts.Seconds()))
		client := func(name, script string) {
			w.app("client.yaml", "NAME", name, "NODE", node, "COMMAND", fmt.Sprintf("bash /bench/%s %s", script, seconds))
		}
		client(name, "bench.sh")
		if kills {
			client(name+"-connects", "connect.sh")
			w.killBoth(lasts)
		}
		said := w.finished(name, lasts+2*time.Minute)
		t.Logf("%s:\n%s", name, said)
		if kills {
			new := w.finished(name+"-connects", time.Minute)
			t.Logf("%s, a new connection each time:\n%s", name, new)
			if f := figures(new); f["connections"] == 0 || f["failed"] > 0 {
				t.Errorf("%s: %v of %v new connections failed", name, f["failed"], f["connections"])
			}
		}
		f := figures(said)
		if f["transactions"] == 0 || f["runs"] != 1 || f["history"] != f["transactions"] {
			t.Errorf("%s: pgbench was started %v times, counts %v transactions, the database %v", name, f["runs"], f["transactions"], f["history"])
		}
		if f["max_ms"] > 15_000 {
			t.Errorf("%s: a transaction took %v ms", name, f["max_ms"])
		}
		return f
	}
	bench("home-calm", "alice", 20*time.Second, false)
	bench("home", "alice", lasts, true)
	bench("bob-calm", "kith-bob", 20*time.Second, false)
	bench("bob", "kith-bob", lasts, true)
	if after := w.restarts("db"); after != before {
		t.Errorf("the database was %s, is %s", before, after)
	}
	log := kubectl(t, w.alice, "-n", "shop", "logs", "db-0")
	if n := strings.Count(log, "reset by peer"); n > 0 {
		t.Errorf("%d connections were reset", n)
	}
}
