package datastore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// progressEvery is how often a stream of watches is told which revision it has seen all of, while nothing happens there. Bookmarks
// of the API server's own watches come once a minute; each time is a query and a message for each of a hundred streams.
const progressEvery = time.Minute

// bridge is kine's server with streams of watches that sleep while nothing happens.
type bridge struct{ *server.KVServerBridge }

// register has a server answer for b: what the API server asks of etcd.
func register(s *grpc.Server, b bridge) {
	etcdserverpb.RegisterKVServer(s, b)
	etcdserverpb.RegisterWatchServer(s, b)
	etcdserverpb.RegisterLeaseServer(s, b)
	etcdserverpb.RegisterMaintenanceServer(s, b)
	etcdserverpb.RegisterClusterServer(s, b)
}

// Watch serves one stream of watches.
func (b bridge) Watch(stream etcdserverpb.Watch_WatchServer) error {
	return b.KVServerBridge.Watch(&unasked{Watch_WatchServer: stream})
}

// unasked is a stream on which nobody asks for progress (see etcdVersion). kine looks ten times a second on each whether somebody
// did; of a hundred streams those are a thousand timers a second on an idle laptop. Of the contexts that it takes of a stream the
// first is for telling of progress unasked, the second for that look: that one has ended (kine 0.16, server.KVServerBridge.Watch).
type unasked struct {
	etcdserverpb.Watch_WatchServer
	taken atomic.Int32
}

func (u *unasked) Context() context.Context {
	ctx := u.Watch_WatchServer.Context()
	if u.taken.Add(1) != 2 {
		return ctx
	}
	ended, end := context.WithCancel(ctx)
	end()
	return ended
}
