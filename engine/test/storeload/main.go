// Command storeload is for the bench: it runs the engine's datastore without an API server, and makes of it, or of an etcd, what an API
// server would make.
//
//	storeload serve FILE SOCKET    until it is interrupted
//	storeload load URL             prints one Result
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"kith.dev/engine/datastore"
)

// What an API server makes of pods that come and go. Sizes are in bytes.
const (
	writers  = 8
	watchers = 100 // streams: as many kinds as a laptop's API server watches
	podBytes = 3000
	events   = 5 // of a pod, of eventBytes each
	statuses = 4 // updates of a pod

	eventBytes = 850
)

// Result is what the load saw.
type Result struct {
	Lives  int     `json:"lives"` // pods that came and went
	Writes int     `json:"writes"`
	Took   float64 `json:"took"`   // seconds
	Median float64 `json:"median"` // of a write, milliseconds
	P99    float64 `json:"p99"`
	List   float64 `json:"list"`  // median of a list of 500 objects meanwhile, milliseconds
	Event  float64 `json:"event"` // median from a write's begin until a watcher has its event, milliseconds
}

func main() {
	log.SetFlags(0)
	lives := flag.Int("lives", 500, "pods that come and go; with 0 it ends as soon as the datastore answers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case flag.Arg(0) == "serve" && flag.NArg() == 3:
		err = serve(ctx, flag.Arg(1), flag.Arg(2))
	case flag.Arg(0) == "load" && flag.NArg() == 2:
		err = load(ctx, flag.Arg(1), *lives)
	default:
		err = errors.New("usage: storeload serve FILE SOCKET, or storeload [-lives N] load URL")
	}
	if err != nil {
		log.Fatal("storeload: ", err)
	}
}

func serve(ctx context.Context, file, socket string) error {
	s, err := datastore.Open(file, socket, slog.Default())
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// target is a datastore under load.
type target struct {
	*clientv3.Client
	lease clientv3.LeaseID // of all events, as the API server shares one among those of a minute

	mu    sync.Mutex
	took  []time.Duration      // each write
	began map[string]time.Time // writes of objects made, whose events are awaited
	heard []time.Duration      // each event of an object that was made
}

func load(ctx context.Context, url string, lives int) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, MaxDelay: 20 * time.Millisecond, Multiplier: 1}})}})
	if err != nil {
		return err
	}
	defer c.Close()
	t := &target{Client: c, began: map[string]time.Time{}}
	granted, err := c.Grant(ctx, 3600)
	if err != nil {
		return err
	}
	if lives == 0 { // it answers: that was the question
		return json.NewEncoder(os.Stdout).Encode(Result{})
	}
	t.lease = granted.ID
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range watchers {
		prefix := "/registry/pods/"
		if i > 0 {
			prefix = fmt.Sprintf("/registry/kind-%d/", i)
		}
		seen := c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV())
		go t.follow(seen, i == 0)
	}
	for i := range 500 {
		if err := t.create(ctx, fmt.Sprintf("/registry/configmaps/default/kept-%d", i), noise(eventBytes), 0); err != nil {
			return err
		}
	}
	t.took = nil
	lists := make(chan []time.Duration)
	listing, listed := context.WithCancel(ctx)
	go func() { lists <- t.list(listing) }()
	began := time.Now()
	err = t.lives(ctx, lives)
	all := time.Since(began)
	listed()
	times := <-lists
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return json.NewEncoder(os.Stdout).Encode(Result{Lives: lives, Writes: len(t.took), Took: all.Seconds(),
		Median: quantile(t.took, 0.5), P99: quantile(t.took, 0.99), List: quantile(times, 0.5), Event: quantile(t.heard, 0.5)})
}

// lives has pods come and go: made, their statuses, their events, deleted.
func (t *target) lives(ctx context.Context, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range writers {
		group.Go(func() error {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := t.life(ctx, fmt.Sprintf("default/churn-7d9f8c5b6-%05d", i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (t *target) life(ctx context.Context, pod string) error {
	key := "/registry/pods/" + pod
	if err := t.create(ctx, key, noise(podBytes), 0); err != nil {
		return err
	}
	for range statuses {
		if err := t.update(ctx, key, noise(podBytes)); err != nil {
			return err
		}
	}
	for i := range events {
		if err := t.create(ctx, fmt.Sprintf("/registry/events/%s.%d", pod, i), noise(eventBytes), t.lease); err != nil {
			return err
		}
	}
	return t.remove(ctx, key)
}

// The transactions are those of k8s.io/apiserver/pkg/storage/etcd3.

func (t *target) create(ctx context.Context, key, value string, lease clientv3.LeaseID) error {
	t.mu.Lock()
	t.began[key] = time.Now()
	t.mu.Unlock()
	return t.write(func() (*clientv3.TxnResponse, error) {
		return t.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value, clientv3.WithLease(lease))).Commit()
	})
}

func (t *target) update(ctx context.Context, key, value string) error {
	return t.change(ctx, key, clientv3.OpPut(key, value))
}

func (t *target) remove(ctx context.Context, key string) error {
	return t.change(ctx, key, clientv3.OpDelete(key))
}

// change does something to an object as it was read.
func (t *target) change(ctx context.Context, key string, do clientv3.Op) error {
	got, err := t.Get(ctx, key)
	if err != nil {
		return err
	}
	if len(got.Kvs) != 1 {
		return fmt.Errorf("%s is not there", key)
	}
	return t.write(func() (*clientv3.TxnResponse, error) {
		return t.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", got.Kvs[0].ModRevision)).Then(do).Else(clientv3.OpGet(key)).Commit()
	})
}

func (t *target) write(do func() (*clientv3.TxnResponse, error)) error {
	began := time.Now()
	answer, err := do()
	took := time.Since(began)
	if err == nil && !answer.Succeeded {
		err = errors.New("somebody else wrote in between")
	}
	t.mu.Lock()
	t.took = append(t.took, took)
	t.mu.Unlock()
	return err
}

// follow reads a watch; with noted it counts how long the events of new objects take.
func (t *target) follow(seen clientv3.WatchChan, noted bool) {
	for answer := range seen {
		at := time.Now()
		for _, e := range answer.Events {
			if noted && e.IsCreate() {
				t.mu.Lock()
				t.heard = append(t.heard, at.Sub(t.began[string(e.Kv.Key)]))
				t.mu.Unlock()
			}
		}
	}
}

// list lists all that is kept ten times a second, until ctx ends.
func (t *target) list(ctx context.Context) (took []time.Duration) {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		began := time.Now()
		if _, err := t.Get(ctx, "/registry/configmaps/", clientv3.WithPrefix(), clientv3.WithLimit(500)); err != nil {
			return took
		}
		took = append(took, time.Since(began))
		select {
		case <-ctx.Done():
			return took
		case <-tick.C:
		}
	}
}

// noise is what does not compress better than an object of Kubernetes.
func noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnop"[rand.IntN(16)]
	}
	return string(b)
}

// quantile of durations, in milliseconds; 0 of none.
func quantile(took []time.Duration, q float64) float64 {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[int(q*float64(len(took)-1))].Seconds() * 1000
}
