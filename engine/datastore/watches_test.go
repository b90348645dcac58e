package datastore

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// loops counts the goroutines of kine that do something again and again for a stream.
func loops() int {
	buf := make([]byte, 16<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "\ngithub.com/k3s-io/kine/pkg/util.UntilWithContext(")
}

// A laptop on which nothing happens is not woken by its datastore: of a stream of watches there is one loop, that tells of progress
// once a minute, and changes arrive as ever.
func TestStreamsOfWatchesSleepWhileNothingHappens(t *testing.T) {
	c, _ := serve(t, t.TempDir())
	const streams = 5
	before := loops()
	var watches []clientv3.WatchChan
	for i := range streams {
		ctx := clientv3.WithRequireLeader(t.Context()) // metadata of its own, so a stream of its own
		if i%2 == 0 {
			ctx = t.Context()
		}
		own, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()})
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		watches = append(watches, own.Watch(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify()))
	}
	for _, w := range watches {
		if created := <-w; !created.Created {
			t.Fatalf("%+v", created)
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); loops()-before != streams; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams have %d loops", streams, loops()-before)
		}
	}
	for i := range 3 {
		revision := put(t, c, fmt.Sprintf("/registry/pods/a/%d", i), "x", 0)
		for n, w := range watches {
			got := <-w
			for len(got.Events) == 0 && got.Err() == nil { // of progress there is word at the beginning
				got = <-w
			}
			if got.Err() != nil || len(got.Events) != 1 || got.Events[0].Kv.ModRevision != revision {
				t.Errorf("stream %d was told %+v, want revision %d", n, got, revision)
			}
		}
	}
}
