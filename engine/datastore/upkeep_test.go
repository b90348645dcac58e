package datastore

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/k3s-io/kine/pkg/drivers"
	kinesqlite "github.com/k3s-io/kine/pkg/drivers/sqlite"
	"github.com/k3s-io/kine/pkg/server"
)

// open opens a database without a socket; it is closed when the test ends.
func open(t testing.TB, file string) backend {
	t.Helper()
	s := &Store{reserve: newReserve(filepath.Dir(file), slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler), writers: &sync.WaitGroup{}}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); s.writers.Wait() })
	b, err := s.open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	return b.(backend)
}

// contents are all keys and values.
func contents(t *testing.T, b server.Backend) map[string]string {
	t.Helper()
	_, kvs, err := b.List(t.Context(), "/", "0", 0, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range kvs {
		all[kv.Key] = string(kv.Value)
	}
	return all
}

// compare tells which keys differ.
func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s has %q, want %q", k, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s is there, and should not be", k)
		}
	}
}

func check(t *testing.T, db *sql.DB) {
	t.Helper()
	var ok string
	if err := db.QueryRow("PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
		t.Errorf("the database is damaged: %s %v", ok, err)
	}
}

// What is compacted is what was replaced or deleted, and nothing that is there; a key that comes again is there again.
func TestCompactionKeepsWhatIsThere(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "state.db"))
	ctx := t.Context()
	want, at := contents(t, b), map[string]int64{}
	var mark int64
	for i := range 4000 {
		key := fmt.Sprint("/registry/things/", rand.IntN(60))
		value := fmt.Sprint("value ", i)
		rev, there := at[key]
		var err error
		ok := true
		switch {
		case !there:
			at[key], err = b.Create(ctx, key, []byte(value), 0)
			want[key] = value
		case rand.IntN(4) == 0:
			_, _, ok, err = b.Delete(ctx, key, rev)
			delete(want, key)
			delete(at, key)
		default:
			at[key], _, ok, err = b.Update(ctx, key, []byte(value), rev, 0)
			want[key] = value
		}
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if i%500 == 499 {
			if err := b.upkeep.bound(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Compact(ctx, mark); err != nil {
				t.Fatal(err)
			}
			mark, _ = b.CurrentRevision(ctx)
			compare(t, contents(t, b), want)
		}
	}
	var rows int
	if err := b.upkeep.db.QueryRow("SELECT COUNT(*) FROM kine").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if rows > retained+600+len(want) {
		t.Errorf("%d rows are left of %d revisions and %d keys", rows, mark, len(want))
	}
	if _, err := b.Compact(ctx, 1); err != nil {
		t.Errorf("compacting what is compacted: %v", err)
	}
	if _, err := b.Compact(ctx, mark+10_000); !errors.Is(err, server.ErrFutureRev) {
		t.Errorf("compacting the future: %v", err)
	}
	check(t, b.upkeep.db)
}

func TestFileShrinksToWhatIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	b := open(t, file)
	ctx := t.Context()
	value := []byte(noise(100 << 10))
	for i := range 300 {
		key := fmt.Sprint("/registry/things/", i)
		rev, err := b.Create(ctx, key, value, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := b.Delete(ctx, key, rev); err != nil {
			t.Fatal(err)
		}
	}
	for i := range retained + 1 { // what is newer is not compacted
		if _, err := b.Create(ctx, fmt.Sprint("/registry/others/", i), []byte("small"), 0); err != nil {
			t.Fatal(err)
		}
	}
	now, err := b.CurrentRevision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Compact(ctx, now); err != nil {
		t.Fatal(err)
	}
	if err := b.upkeep.checkpoint(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if left := size(t, file) + size(t, file+"-wal"); left > freeKept+(1<<20) {
		t.Errorf("%d kB are left of 30 MB that were deleted", left>>10)
	}
	check(t, b.upkeep.db)
}

func TestOldestEventsGoFirst(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "state.db"))
	ctx := t.Context()
	want := contents(t, b)
	for i := range 30 {
		key := fmt.Sprintf("/registry/events/default/event-%d", 99-i) // names do not say how old they are
		if _, err := b.Create(ctx, key, []byte("e"), 3600); err != nil {
			t.Fatal(err)
		}
		if i >= 20 {
			want[key] = "e"
		}
	}
	for _, other := range []string{"/registry/pods/default/a", "/registry/events.k8s.io/x"} {
		if _, err := b.Create(ctx, other, []byte("p"), 0); err != nil {
			t.Fatal(err)
		}
		want[other] = "p"
	}
	b.events.kept = 10
	watch := b.Watch(ctx, "/registry/events/", "/registry/events0", 0)
	old, err := b.events.surplus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// The oldest of all changes before it is deleted, and stays until the next time.
	changed := old[len(old)-1]
	if _, _, ok, err := b.Update(ctx, changed.name, []byte("new"), changed.id, 3600); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := b.events.delete(ctx, old); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, b)[changed.name]; got != "new" {
		t.Errorf("an event that changed was deleted: %q", got)
	}
	for gone := 0; gone < len(old)-1; { // watchers are told
		for _, e := range <-watch.Events {
			if e != nil && e.Delete {
				gone++
				if e.PrevKV == nil || string(e.PrevKV.Value) != "e" {
					t.Errorf("%s was deleted without what it was: %+v", e.KV.Key, e.PrevKV)
				}
			}
		}
	}
	want[changed.name] = "new"
	delete(want, "/registry/events/default/event-79") // the oldest of ten, as the one that changed is the newest now
	for range 2 {
		if err := b.events.bound(ctx); err != nil {
			t.Fatal(err)
		}
		compare(t, contents(t, b), want)
	}
}

// A database that kine's own package made is taken over with all that is in it, also if the one who did it was stopped half
// way, and is what a new one is.
func TestDatabaseOfAnEarlierVersionIsTakenOver(t *testing.T) {
	for _, halfway := range []bool{false, true} {
		t.Run(fmt.Sprint("stopped halfway ", halfway), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "state.db")
			ctx, stop := context.WithCancel(t.Context())
			writers := &sync.WaitGroup{}
			old, _, err := kinesqlite.NewVariant(ctx, writers, "sqlite3", &drivers.Config{
				DataSourceName: file + "?" + kinesqlite.DefaultParams, CompactBatchSize: 1000, PollBatchSize: 500,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := old.Start(ctx); err != nil {
				t.Fatal(err)
			}
			var last int64
			for i := range 50 {
				key := fmt.Sprint("/registry/things/", i)
				rev, err := old.Create(ctx, key, []byte("first"), 0)
				if err == nil && i%2 == 0 {
					rev, _, _, err = old.Update(ctx, key, []byte(noise(5000)), rev, 0)
				}
				if err == nil && i%5 == 0 {
					rev, _, _, err = old.Delete(ctx, key, rev)
				}
				if err != nil {
					t.Fatal(err)
				}
				last = rev
			}
			want := contents(t, old)
			stop()
			writers.Wait()
			// Its unread answer keeps the file open; what a dead process leaves are the database and the log.
			file = lifted(t, file)
			if halfway { // the table has its shape, the file has not
				db, err := sql.Open("sqlite", dsn(file, ""))
				if err == nil {
					err = reshape(t.Context(), db, true)
				}
				if err := errors.Join(err, db.Close()); err != nil {
					t.Fatal(err)
				}
			}

			b := open(t, file)
			compare(t, contents(t, b), want)
			rev, err := b.Create(t.Context(), "/registry/things/new", []byte("new"), 0)
			if err != nil || rev <= last {
				t.Errorf("the revision after %d is %d: %v", last, rev, err)
			}
			if _, _, ok, err := b.Delete(t.Context(), "/registry/things/1", 0); err != nil || !ok {
				t.Error(ok, err)
			}
			compare(t, shapeOf(t, b), shapeOf(t, open(t, filepath.Join(t.TempDir(), "state.db"))))
			check(t, b.upkeep.db)
		})
	}
}

// One that a newer Kith gave another shape is not given ours: it is left as it is, and the newer one can go on.
func TestDatabaseOfANewerVersionIsLeftAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	db, err := sql.Open("sqlite", dsn(file, ""))
	if err == nil {
		_, err = db.Exec(fmt.Sprintf("CREATE TABLE kine (id INTEGER PRIMARY KEY, later TEXT); PRAGMA user_version = %d", shape+1))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(file, filepath.Join(t.TempDir(), "kine.sock"), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "a newer Kith wrote it: it has shape 2, and this one knows those up to 1; install the newer one again") {
		t.Error(err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the database was changed: %v", err)
	}
}

// lifted copies database and log to another folder.
func lifted(t *testing.T, file string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "state.db")
	for _, end := range []string{"", "-wal"} {
		b, err := os.ReadFile(file + end)
		if err == nil {
			err = os.WriteFile(to+end, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// shapeOf tells what prepare decides.
func shapeOf(t *testing.T, b backend) map[string]string {
	t.Helper()
	is := map[string]string{}
	for _, p := range []string{"page_size", "user_version", "auto_vacuum", "journal_mode"} {
		var v string
		if err := b.upkeep.db.QueryRow("PRAGMA " + p).Scan(&v); err != nil {
			t.Fatal(err)
		}
		is[p] = v
	}
	rows, err := b.upkeep.db.Query("SELECT name, sql FROM sqlite_schema")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		is[name] = strings.ReplaceAll(text, `"kine"`, "kine")
	}
	delete(is, "sqlite_sequence") // of the table that is gone
	return is
}

// A writer that is killed, whatever it is doing (writing, compacting, copying its log, shrinking), has lost nothing that it
// was told is written.
func TestKilledWriterLosesNothing(t *testing.T) {
	if dir := os.Getenv("KITH_TEST_WRITER"); dir != "" {
		writeUntilKilled(t, dir)
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "state.db")
	want := map[string]string{}
	for round := range 4 {
		c := exec.Command(os.Args[0], "-test.run", "^TestKilledWriterLosesNothing$")
		c.Env = append(os.Environ(), "KITH_TEST_WRITER="+dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines, until := bufio.NewScanner(out), 200+rand.IntN(800)
		said := map[string]string{}
		for n := 0; lines.Scan(); n++ {
			if key, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(key, "/") {
				said[key] = value
			}
			if n == until {
				_ = c.Process.Kill()
			}
		}
		_ = c.Wait()
		if len(said) == 0 {
			t.Fatal("the writer wrote nothing")
		}
		maps.Copy(want, said)
		s := &Store{reserve: newReserve(dir, slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler), writers: &sync.WaitGroup{}}
		ctx, stop := context.WithCancel(t.Context())
		b, err := s.open(ctx, file)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		check(t, b.(backend).upkeep.db)
		got := contents(t, b)
		for key, value := range want {
			// What was written and not yet said may be there instead.
			if n, m := 0, 0; got[key] != value {
				fmt.Sscan(got[key], &n)
				fmt.Sscan(value, &m)
				if n != m+1 {
					t.Errorf("round %d: %s has %q, and was told %q", round, key, got[key], value)
				}
			}
			want[key] = got[key]
		}
		stop()
		s.writers.Wait()
	}
}

// writeUntilKilled counts keys up, and says so after each.
func writeUntilKilled(t *testing.T, dir string) {
	b := open(t, filepath.Join(dir, "state.db"))
	ctx := t.Context()
	ballast := []byte(noise(20 << 10))
	for i := 0; ; i++ {
		key := fmt.Sprint("/count/", i%7)
		_, kv, err := b.Get(ctx, key, 0, false)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if kv == nil {
			_, err = b.Create(ctx, key, []byte("0"), 0)
		} else {
			fmt.Sscan(string(kv.Value), &n)
			n++
			_, _, _, err = b.Update(ctx, key, fmt.Append(nil, n), kv.ModRevision, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(key, n)
		heavy := fmt.Sprint("/heavy/", os.Getpid(), "/", i)
		if rev, err := b.Create(ctx, heavy, ballast, 0); err == nil {
			_, _, _, _ = b.Delete(ctx, heavy, rev)
		}
		if i%200 == 0 {
			if now, err := b.CurrentRevision(ctx); err == nil {
				_, _ = b.Compact(ctx, now)
			}
		}
	}
}

// Two users of a connection with the same text each read their own answer.
func TestStatementHasOneUserAtATime(t *testing.T) {
	b := open(t, filepath.Join(t.TempDir(), "state.db"))
	for i := range 3 {
		if _, err := b.Create(t.Context(), fmt.Sprint("/registry/things/", i), []byte("v"), 0); err != nil {
			t.Fatal(err)
		}
	}
	one, err := b.upkeep.store.DB.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	const text = "SELECT name FROM kine WHERE name >= ? ORDER BY name"
	next := func(rows *sql.Rows) (name string) {
		if rows.Next() {
			_ = rows.Scan(&name)
		}
		return name
	}
	for range 3 {
		first, err := one.QueryContext(t.Context(), text, "/registry/things/0")
		if err != nil {
			t.Fatal(err)
		}
		a := next(first)
		second, err := one.QueryContext(t.Context(), text, "/registry/things/2")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(a, next(second), next(first)); got != "/registry/things/0/registry/things/2/registry/things/1" {
			t.Errorf("read %s", got)
		}
		if err := errors.Join(second.Close(), first.Close(), second.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := one.ExecContext(t.Context(), "INSERT INTO kine(id) VALUES(1)"); err == nil {
		t.Error("a number was given twice")
	}
	if _, err := one.ExecContext(t.Context(), "INSERT INTO kine(id, name) VALUES(?, 'x')", 1_000_000); err != nil {
		t.Errorf("after an error: %v", err)
	}
}
