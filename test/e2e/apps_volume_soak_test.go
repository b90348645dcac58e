//go:build lab && soak

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/test/lab"
)

// TestPostgresOnAVolumeAtAPeerLosesNothing runs PostgreSQL at bob, its data on a volume of a claim there, under pgbench from home; bob loses power
// in the middle, and again, and the pod is deleted. What was acknowledged is there each time.
func TestPostgresOnAVolumeAtAPeerLosesNothing(t *testing.T) {
	w := postgresOnAClaim(t, true)
	const lasts = 90 * time.Second
	w.app("client.yaml", "NAME", "load", "NODE", "alice", "COMMAND", fmt.Sprintf("bash /bench/bench.sh %d", int(lasts.Seconds())))
	for range 2 {
		time.Sleep(15 * time.Second)
		if err := w.bob.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err := w.bob.Boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, 3*time.Minute, "the database is ready", func() string { return w.appReady("db", 1) })
	}
	w.acknowledged("load", lasts)
}

// postgresOnAClaim has PostgreSQL with its data on a volume of a claim, and pgbench's tables in it: at bob, or where the scheduler likes.
func postgresOnAClaim(t *testing.T, atBob bool) *world {
	t.Helper()
	archive, err := filepath.Abs(filepath.Join("..", "..", "build", "apps", "images.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(archive); err != nil {
		t.Skip("the image of PostgreSQL is missing: scripts/apps.sh makes it")
	}
	l := laptops(t, lab.Options{Laptops: 2, Images: []string{archive}})
	w := &world{t: t, l: l, alice: l.Laptop("alice"), bob: l.Laptop("bob"), apis: map[string]client.Client{}}
	eventually(t, time.Minute, "kithd of bob is ready", func() string { return engineReady(t, w.bob) })
	kith(t, w.bob, "share", "--storage", "4Gi")
	befriend(t, w.alice, w.bob, append(appsAsk, "--storage", "2Gi")...)
	kubectl(t, w.alice, "create", "namespace", "shop")
	kith(t, w.alice, "offload", "shop", "--volumes", "anywhere")
	text, err := os.ReadFile(filepath.Join("testdata", "apps", "postgres.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const scratch = "      - {name: data, emptyDir: {sizeLimit: 2Gi}}\n"
	if !strings.Contains(string(text), scratch) {
		t.Fatal("postgres.yaml has its data elsewhere")
	}
	// Else the kubelet gives the group rights on each start of the pod, and PostgreSQL refuses a folder that others may read.
	text = []byte(strings.Replace(string(text), "fsGroup: 999,", "fsGroup: 999, fsGroupChangePolicy: OnRootMismatch,", 1))
	manifest := strings.Replace(string(text), scratch, "", 1)
	if !atBob {
		manifest = strings.Replace(manifest, "      nodeSelector: {topology.kubernetes.io/zone: bob}\n", "", 1)
	}
	apply(t, w.alice, manifest+`
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`)
	w.app("bench.yaml")
	eventually(t, 3*time.Minute, "the database is ready", func() string { return w.appReady("db", 1) })
	for _, command := range []string{"createdb -U postgres bench", "pgbench -i -q -s 5 -U postgres bench"} {
		if out, err := w.in("db-0", strings.Fields(command)...); err != nil {
			t.Fatalf("%s: %v %s", command, err, out)
		}
	}
	return w
}

// acknowledged makes sure that what pgbench was told to be written is in the database, also when that starts again.
func (w *world) acknowledged(load string, lasts time.Duration) {
	t := w.t
	t.Helper()
	said := w.finished(load, lasts+2*time.Minute)
	t.Log(said)
	f := figures(said)
	// Of each connection that broke, one transaction may have been written and not been acknowledged.
	if f["transactions"] < 100 || f["runs"] < 2 || f["history"] < f["transactions"] || f["history"] > f["transactions"]+4*f["runs"] {
		t.Errorf("in %v runs %v transactions were acknowledged, and the database has %v", f["runs"], f["transactions"], f["history"])
	}
	kubectl(t, w.alice, "-n", "shop", "delete", "pod", "db-0")
	eventually(t, 3*time.Minute, "the database is ready", func() string { return w.appReady("db", 1) })
	for query, want := range map[string]string{
		"select count(*) from pgbench_history": fmt.Sprint(int(f["history"])),
		"select (select sum(delta) from pgbench_history) = (select sum(abalance) from pgbench_accounts)": "t",
	} {
		if out, err := w.in("db-0", "psql", "-U", "postgres", "-Atc", query, "bench"); err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%s: %q, %v, want %s", query, out, err, want)
		}
	}
	if out, err := w.in("db-0", "bash", "-c", "df -P /data | tail -1"); err == nil {
		t.Log(out)
	}
}
