package localapi_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
)

func TestFollowerOfTheSnapshotIsToldOfChangesAlone(t *testing.T) {
	b := &apitest.Backend{State: api.Status{Name: "alice"}, Known: []api.Peer{bob()}}
	c := client.New(apitest.Serve(t, b, localapi.NewBroker(8)))
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	next, stop := iter.Pull2(c.Snapshots(ctx))
	defer stop()
	if s, err, _ := next(); err != nil || s.Status.Name != "alice" || len(s.Peers) != 1 {
		t.Fatal(s, err)
	}
	// What moves by itself is no change; the next snapshot is the one with the request, and has both.
	b.Set(func() { b.Known[0].LastSeen, b.Known[0].Tunnel.RX, b.Known[0].Why = time.Now(), 17, "seen 3 min ago" })
	b.Set(func() { b.Known[0].Why = "seen 4 min ago" })
	time.Sleep(300 * time.Millisecond)
	b.Set(func() { b.Known[0].Why = "seen 5 min ago" })
	time.Sleep(300 * time.Millisecond)
	b.Set(func() { b.Pending = []api.Request{{ID: "bob-1", Peer: "bob"}} })
	s, err, _ := next() // bob has a Why now
	if err != nil || s.Peers[0].Tunnel.RX != 17 || len(s.Requests) != 0 {
		t.Fatal(s, err)
	}
	if s, err, _ = next(); err != nil || len(s.Requests) != 1 {
		t.Fatal(s, err)
	}
	cancel()
	if _, err, more := next(); more {
		t.Error(err)
	}
}

func TestSnapshotThatFailsSaysWhy(t *testing.T) {
	b := &apitest.Backend{Fail: &api.Error{Code: api.CodeNotReady, Message: "not yet"}}
	c := client.New(apitest.Serve(t, b, localapi.NewBroker(8)))
	defer c.Close()
	if _, err := c.Snapshot(t.Context()); err == nil || err.Error() != "not yet" {
		t.Error(err)
	}
	for _, err := range c.Snapshots(t.Context()) {
		if err == nil || err.Error() != "not yet" {
			t.Error(err)
		}
	}
}
