// Package datastore is the cluster's memory: kine over one SQLite file, spoken to as etcd over a unix socket.
// The API server is its only client.
//
// Only kine's SQLite driver is linked, and not its command: that saves 18 MB of program and 77 MB of memory. Some room on
// the disk is kept back for the moment when it is full.
package datastore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	"github.com/k3s-io/kine/pkg/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"kith.dev/engine/listener"
)

// etcdVersion is what the API server is told; it decides which etcd features it uses. This is the last version of which it knows
// that progress of watches cannot be asked for (etcd's issue 17507), and asks for none to list from its cache what is the newest:
// kine looks ten times a second whether it was asked (server.progressResponsePeriod), on each of a hundred streams, so such a list
// took 50 ms on average, or 5 s for the hundred of them that clear a namespace away. Read from the database it takes one. It is
// what was read, too: kine says that a stream is up to date while an event may be on its way through two more goroutines.
const etcdVersion = "3.5.12"

// pollBatch are the revisions that watchers are told of at once.
const pollBatch = 500

// Store is an open datastore.
type Store struct {
	boot     []byte // which one this is; nil: unknown
	listener net.Listener
	grpc     *grpc.Server
	reserve  *reserve
	log      *slog.Logger
	stop     context.CancelFunc
	writers  *sync.WaitGroup
}

// Open opens or makes the database file and listens on socket, replacing one that a killed server left.
func Open(file, socket string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("folder of the datastore: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Store{reserve: newReserve(filepath.Dir(file), log), log: log, stop: stop, writers: &sync.WaitGroup{}}
	if boot, err := os.ReadFile(bootIDFile); err != nil {
		log.Warn("this boot of the machine cannot be told from others; each start counts as one", "err", err)
	} else {
		s.boot = boot
	}
	backend, err := s.open(ctx, file)
	if s.reserve.giveUp(err) {
		backend, err = s.open(ctx, file)
	}
	if errors.Is(err, errNewer) {
		stop()
		return nil, fmt.Errorf("datastore %s: %w", file, err)
	} else if err != nil {
		stop()
		return nil, fmt.Errorf("datastore %s: %w; if the disk is full make room, if the file is damaged restore it from a backup", file, err)
	}
	if s.listener, err = listener.Unix(socket); err != nil {
		stop()
		return nil, fmt.Errorf("socket of the datastore: %w", err)
	}
	s.grpc = grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}),
		grpc.MaxRecvMsgSize(2<<20), grpc.MaxSendMsgSize(1<<31-1),
	)
	register(s.grpc, bridge{server.New(backend, "unix", progressEvery, etcdVersion)})
	return s, nil
}

// open opens the database; what cannot be written because the disk is full costs the reserve, and is written then.
func (s *Store) open(ctx context.Context, file string) (server.Backend, error) {
	made, err := prepare(ctx, file)
	if err != nil {
		return nil, err
	}
	d, err := openDatabase(ctx, file, s.writers)
	if err != nil {
		return nil, err
	}
	d.Retry = s.reserve.giveUp
	u, err := newUpkeep(file, d, s.reserve, s.log)
	if err != nil {
		return nil, err
	}
	kine := logstructured.New(sqllog.New(dialect{d, u}, 0, 0, 0, 0, compactBatch, pollBatch))
	if err = u.inNewBoot(ctx, filepath.Dir(file), s.boot, made); err == nil {
		err = kine.Start(ctx)
	}
	if err == nil {
		u.mark, err = d.CurrentRevision(ctx) // all that an earlier life left is old
	}
	if err != nil {
		return nil, errors.Join(err, u.db.Close())
	}
	e := &events{upkeep: u, kept: eventsKept}
	s.writers.Add(1)
	go func() { defer s.writers.Done(); u.run(ctx, e) }()
	return backend{kine, u, e}, nil
}

// Run serves until ctx ends, then closes the database. Cancel ctx only after the API server has stopped.
func (s *Store) Run(ctx context.Context) error {
	defer s.close()
	stopped := context.AfterFunc(ctx, s.grpc.Stop)
	defer stopped()
	kept := make(chan struct{})
	go func() { s.reserve.run(ctx); close(kept) }()
	defer func() { <-kept }()
	if err := s.grpc.Serve(s.listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("datastore: %w", err)
	}
	return nil
}

func (s *Store) close() {
	s.stop()
	closed := make(chan struct{})
	go func() { s.writers.Wait(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(3 * time.Second): // SQLite recovers from its log at the next start
	}
}
