package datastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/server"
	"modernc.org/sqlite"
)

const (
	// checkpointEvery is how much is written until the log is copied into the database, which needs nobody to wait.
	checkpointEvery = 2 << 20
	// logLarge is where writers wait for a moment so that the log can start again from its beginning. Without that it only
	// does when there happens to be no reader and no writer.
	logLarge = 8 << 20
	// historySpan is how much is written until what was old the last time is compacted. The API server compacts what is
	// older than five to ten minutes; a laptop on which pods come and go writes a gigabyte in that time.
	historySpan = 16 << 20
	// retained are the newest revisions, which are never compacted: watchers may not have been told of them yet.
	retained = 1000
	// compactBatch are the revisions compacted in one transaction, while writers wait.
	compactBatch = 500
	// eventsKept of Kubernetes stay, the newest, if they are not older than an hour. One takes 1.5 kB, and a pod's life leaves
	// five or six.
	eventsKept = 10_000
	// freeKept of a file is not given back to the disk: more would have to be taken again at once.
	freeKept = 2 << 20
	// vacuumBatch are the pages given back in one transaction.
	vacuumBatch = 2000
)

// upkeep keeps the database as small as what is in it: the log is copied and started again, what is old goes, and room that
// is free goes back to the disk. All of it follows writes, or the API server's own compaction every five minutes; a
// cluster that writes nothing is left alone. Every step is a transaction of its own, so a crash only undoes the last one.
type upkeep struct {
	db      *sql.DB          // a connection of its own
	writing sync.Locker      // held by whoever writes
	store   *generic.Generic // reads
	reserve *reserve
	log     *slog.Logger

	logged, history    atomic.Int64  // bytes since the last checkpoint, and since mark
	logDue, historyDue chan struct{} // one token each

	compacting sync.Mutex
	mark       int64 // a revision; what it replaced goes next
}

func newUpkeep(file string, store *generic.Generic, r *reserve, log *slog.Logger) (*upkeep, error) {
	// Whoever holds up a checkpoint for a second is let go: the next one comes soon.
	inner, err := sqlite.NewConnector(dsn(file, "&_pragma=busy_timeout(1000)&_synchronous=NORMAL&_txlock=immediate"))
	if err != nil {
		return nil, err
	}
	u := &upkeep{db: sql.OpenDB(inner), writing: store, store: store, reserve: r, log: log,
		logDue: make(chan struct{}, 1), historyDue: make(chan struct{}, 1)}
	u.db.SetMaxOpenConns(1)
	return u, nil
}

// wrote notes a write of size bytes in three places: the row, its entry in the index, and how the file is divided.
func (u *upkeep) wrote(size int) {
	n := int64(size + 3*pageSize)
	u.grew(n)
	if u.history.Add(n) >= historySpan {
		token(u.historyDue)
	}
}

func (u *upkeep) grew(bytes int64) {
	if u.logged.Add(bytes) >= checkpointEvery {
		token(u.logDue)
	}
}

func token(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run follows the writes until ctx ends.
func (u *upkeep) run(ctx context.Context, e *events) {
	defer u.db.Close()
	var loops sync.WaitGroup
	loops.Go(func() {
		u.follow(ctx, u.logDue, func() error { return u.checkpoint(ctx, logLarge) })
	})
	loops.Go(func() {
		u.follow(ctx, u.historyDue, func() error { return errors.Join(u.bound(ctx), e.bound(ctx)) })
	})
	loops.Wait()
}

func (u *upkeep) follow(ctx context.Context, due <-chan struct{}, do func() error) {
	for {
		select {
		case <-due:
		case <-ctx.Done():
			return
		}
		if err := do(); err != nil && ctx.Err() == nil {
			u.log.Warn("the datastore's upkeep failed; it will be tried again", "err", err)
		}
	}
}

// checkpoint copies the log into the database, which starts it again from its beginning unless somebody is just using it.
// A log larger than large is started again in any case.
func (u *upkeep) checkpoint(ctx context.Context, large int64) error {
	u.logged.Store(0)
	size, err := u.pragma(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
	if err != nil || size <= large {
		return err
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	_, err = u.pragma(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// pragma does a checkpoint and tells the size of the log before it.
func (u *upkeep) pragma(ctx context.Context, text string) (size int64, err error) {
	err = u.reserve.spend(func() error {
		var busy, pages, copied int64
		err := u.db.QueryRowContext(ctx, text).Scan(&busy, &pages, &copied)
		size = pages * pageSize
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", text, err)
	}
	return size, nil
}

// bound compacts what was old when it was called last.
func (u *upkeep) bound(ctx context.Context) error {
	u.compacting.Lock()
	defer u.compacting.Unlock()
	u.history.Store(0)
	now, err := u.store.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	old := u.mark
	u.mark = now
	return u.compact(ctx, old)
}

// compactTo is what the API server asks for.
func (u *upkeep) compactTo(ctx context.Context, revision int64) error {
	u.compacting.Lock()
	defer u.compacting.Unlock()
	return u.compact(ctx, revision)
}

// compact removes what revisions up to this one replaced or deleted.
func (u *upkeep) compact(ctx context.Context, revision int64) error {
	now, err := u.store.CurrentRevision(ctx)
	if err != nil {
		return err
	}
	from, err := u.store.GetCompactRevision(ctx)
	if err != nil {
		return err
	}
	for revision = min(revision, now-retained); from < revision; {
		to := min(from+compactBatch, revision)
		if err := u.reserve.spend(func() error { return u.compactBatch(ctx, from, to) }); err != nil {
			return fmt.Errorf("compact revisions %d to %d: %w", from, to, err)
		}
		from = to
	}
	return nil
}

// compactBatch need not look at what is older than from: the compaction up to there has.
func (u *upkeep) compactBatch(ctx context.Context, from, to int64) error {
	return u.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM kine WHERE id IN (
			SELECT prev_revision FROM kine WHERE id > ? AND id <= ? AND name != 'compact_rev_key'
			UNION ALL
			SELECT id FROM kine WHERE id > ? AND id <= ? AND deleted != 0)`, from, to, from, to)
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE kine SET prev_revision = ? WHERE name = 'compact_rev_key'", to)
		}
		u.grew((to - from) * pageSize)
		return err
	})
}

// write does something in one transaction, for which others who write wait.
func (u *upkeep) write(ctx context.Context, do func(*sql.Tx) error) error {
	u.writing.Lock()
	defer u.writing.Unlock()
	return transaction(ctx, u.db, do)
}

func transaction(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// shrink gives free room of the file back to the disk, if it is a larger part than a quarter of what is used.
func (u *upkeep) shrink(ctx context.Context) error {
	for {
		var pages, free int64
		err := errors.Join(
			u.db.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages),
			u.db.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free))
		if err != nil {
			return err
		}
		if free*pageSize < freeKept+(pages-free)*pageSize/4 {
			return nil
		}
		if err := u.reserve.spend(func() error { return u.vacuum(ctx) }); err != nil {
			return fmt.Errorf("shrink: %w", err)
		}
	}
}

func (u *upkeep) vacuum(ctx context.Context) error {
	u.writing.Lock()
	defer u.writing.Unlock()
	_, err := u.db.ExecContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumBatch))
	u.grew(vacuumBatch * pageSize)
	return err
}

// dialect is kine's, and tells upkeep what is written.
type dialect struct {
	*generic.Generic
	*upkeep
}

func (d dialect) Insert(ctx context.Context, key string, create, delete bool, createRevision, previous, ttl int64, value []byte) (int64, error) {
	defer d.wrote(len(value))
	return d.Generic.Insert(ctx, key, create, delete, createRevision, previous, ttl, value)
}

// backend is kine's, whose history is compacted here and not by kine: its transactions end the process when the disk is full.
type backend struct {
	server.Backend
	upkeep *upkeep
	events *events
}

// List gives with nothing no revision of after it looked. kine asks for that when it has found nothing (0.16, sqllog.SQLLog.List): what is
// made in between, the first of its kind, would be in no list, and in no watch from that revision on. The revision of before may tell a
// watch of more than it needs to hear, which does no harm. So with Get.
func (b backend) List(ctx context.Context, key, end string, limit, revision int64, keysOnly bool) (int64, []*server.KeyValue, error) {
	before, err := b.before(ctx, revision)
	if err != nil {
		return 0, nil, err
	}
	now, found, err := b.Backend.List(ctx, key, end, limit, revision, keysOnly)
	if len(found) == 0 {
		now = min(now, before)
	}
	return now, found, err
}

// Get is as List is.
func (b backend) Get(ctx context.Context, key string, revision int64, keysOnly bool) (int64, *server.KeyValue, error) {
	before, err := b.before(ctx, revision)
	if err != nil {
		return 0, nil, err
	}
	now, found, err := b.Backend.Get(ctx, key, revision, keysOnly)
	if found == nil {
		now = min(now, before)
	}
	return now, found, err
}

// before is the revision now, to look at what is newest (0); who asks for another has that.
func (b backend) before(ctx context.Context, revision int64) (int64, error) {
	if revision != 0 {
		return math.MaxInt64, nil
	}
	return b.CurrentRevision(ctx)
}

// Compact is asked for by the API server every five minutes, for what was the newest revision the last time.
func (b backend) Compact(ctx context.Context, revision int64) (int64, error) {
	now, err := b.CurrentRevision(ctx)
	if err != nil {
		return 0, err
	}
	if revision > now {
		return 0, server.ErrFutureRev
	}
	err = b.upkeep.compactTo(ctx, revision) // what is compacted already is no error, which the API server would show
	err = errors.Join(err, b.events.bound(ctx), b.upkeep.shrink(ctx))
	if b.upkeep.logged.Load() >= checkpointEvery {
		err = errors.Join(err, b.upkeep.checkpoint(ctx, checkpointEvery))
	}
	return now, err
}
