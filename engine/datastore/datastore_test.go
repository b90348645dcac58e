package datastore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// serve opens a datastore in a folder and serves it until the test ends or stop is called, and gives a client like the API
// server's.
func serve(t *testing.T, dir string) (c *clientv3.Client, stop func()) {
	t.Helper()
	sockets, err := os.MkdirTemp("", "ds-") // short: it holds a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	socket := filepath.Join(sockets, "s")
	s, err := Open(filepath.Join(dir, "state.db"), socket, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c, err = clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return c, stop
}

// put makes or changes a key as the API server does, which is all that kine takes, and gives its revision.
func put(t testing.TB, c *clientv3.Client, key, value string, after int64, opts ...clientv3.OpOption) int64 {
	t.Helper()
	txn := c.Txn(context.Background()).If(clientv3.Compare(clientv3.ModRevision(key), "=", after)).Then(clientv3.OpPut(key, value, opts...))
	if after != 0 {
		txn = txn.Else(clientv3.OpGet(key))
	}
	resp, err := txn.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if !resp.Succeeded {
		t.Fatalf("%s was not at revision %d", key, after)
	}
	return resp.Header.Revision
}

func remove(t testing.TB, c *clientv3.Client, key string, at int64) {
	t.Helper()
	resp, err := c.Txn(context.Background()).If(clientv3.Compare(clientv3.ModRevision(key), "=", at)).
		Then(clientv3.OpDelete(key)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		t.Fatal(err)
	}
	if !resp.Succeeded {
		t.Fatalf("%s was not at revision %d", key, at)
	}
}

// noise is what does not compress, as it is nobody's to compress.
func noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return string(b)
}

func size(t testing.TB, file string) int64 {
	t.Helper()
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// While pods come and go, with watchers and readers all the time, the log is copied into the database again and again, and
// database and log hold little more than what may still be asked for.
func TestLogAndDatabaseAreBoundedUnderLoad(t *testing.T) {
	dir := t.TempDir()
	c, stop := serve(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for range c.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithPrevKV()) {
			}
		})
	}
	readers.Go(func() {
		for ctx.Err() == nil {
			_, _ = c.Get(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithLimit(500))
		}
	})
	value := noise(20 << 10)
	var largest, last int64
	file := filepath.Join(dir, "state.db")
	for i := range 250 { // 20 MB of values
		key := fmt.Sprint("/registry/pods/default/churn-", i)
		rev := put(t, c, key, value, 0)
		for range 3 {
			rev = put(t, c, key, value, rev)
		}
		remove(t, c, key, rev)
		last = size(t, file+"-wal")
		largest = max(largest, last)
	}
	cancel()
	readers.Wait()
	limit := int64(logBackstop + 2*logLarge) // on a disk that takes seconds for a sync
	if largest > limit {
		t.Errorf("the log grew to %d MB, and may to %d", largest>>20, limit>>20)
	}
	// What may be asked for are a thousand revisions and two spans of history.
	if all, limit := size(t, file)+last, int64(retained*len(value)+3*historySpan)+limit; all > limit {
		t.Errorf("database and log have %d MB, and may have %d", all>>20, limit>>20)
	}
	stop()
}

// Watchers are told the value before a change, though only the row of that value has it, also from a revision in the past.
func TestWatchersAreToldThePreviousValue(t *testing.T) {
	c, _ := serve(t, t.TempDir())
	key := "/registry/pods/default/a"
	first := put(t, c, key, "one", 0)
	second := put(t, c, key, "two", first)
	put(t, c, "/registry/pods/default/b", "other", 0)
	remove(t, c, key, second)
	third := put(t, c, key, "three", 0)

	for _, watch := range []clientv3.WatchChan{
		c.Watch(t.Context(), "/registry/pods/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(first)),
		c.Watch(t.Context(), key, clientv3.WithPrevKV(), clientv3.WithRev(first)),
	} {
		var got []string
		for len(got) < 4 {
			for _, e := range (<-watch).Events {
				if string(e.Kv.Key) != key {
					continue
				}
				before := "-"
				if e.PrevKv != nil {
					before = string(e.PrevKv.Value)
				}
				got = append(got, fmt.Sprint(e.Type, " ", before, " ", string(e.Kv.Value)))
			}
		}
		if want := "[PUT - one PUT one two DELETE two  PUT - three]"; fmt.Sprint(got) != want {
			t.Errorf("watched %v, want %v", got, want)
		}
	}
	resp, err := c.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != third || string(resp.Kvs[0].Value) != "three" {
		t.Errorf("got %v: %v", resp, err)
	}
	if resp, err = c.Get(t.Context(), key, clientv3.WithRev(second)); err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "two" {
		t.Errorf("at revision %d: %v: %v", second, resp, err)
	}
}
