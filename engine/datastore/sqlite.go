package datastore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/query"
	"github.com/k3s-io/kine/pkg/server"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// kine's own package for SQLite is not used. It asks at the start how many rows there are, and never reads the answer
// (generic.Generic.Migrate): with this driver, which steps a query when it is made, that is a reader that never ends, and
// what is written after it is never copied from the log into the database. Its table has six indexes, too, each a page
// more to write for every change, where one is enough.

const (
	// pageSize is what SQLite reads and writes at once. Most of what a calm cluster writes is a row of half a kilobyte and
	// its entry in the index, and each page that is touched is written whole, into the log and again into the database.
	pageSize = 1024
	// shape is the version of all that prepare does, kept in the database.
	shape = 1
	// connections read side by side; each has a cache of up to 2 MB.
	connections = 8
	// logKeep is how much of the log stays as a file when it starts again from its beginning.
	logKeep = 4 << 20
	// logBackstop is where SQLite copies from the log by itself (PRAGMA wal_autocheckpoint), should upkeep not have done it.
	logBackstop = 32 << 20
)

// table is kine's, without AUTOINCREMENT, which is a page more for each write: the newest revisions are never compacted, so
// no number is given twice. A previous value is found in its own row, and old_value stays empty: that row lives for as long
// as one that refers to it can be asked for.
var table = []string{
	`CREATE TABLE kine (id INTEGER PRIMARY KEY, name TEXT, created INTEGER, deleted INTEGER,
		create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB)`,
	`CREATE UNIQUE INDEX kine_name_prev_revision_uindex ON kine (name, prev_revision)`,
}

// dsn names the file for the driver. params are added to what holds for each connection. The VFS locks the file against
// other processes, of which there are none, and keeps the index of the log in memory: beside the database it would be a
// file of which every write changes some pages, and the kernel writes those to the disk as well.
func dsn(file, params string) string {
	return "file:" + (&url.URL{Path: file}).EscapedPath() + "?vfs=unix-excl&_busy_timeout=30000" + params
}

var errNewer = errors.New("a newer Kith wrote it")

// prepare makes the database, or gives one of an earlier version the shape it has now. A crash at any step leaves what the
// next call goes on with. made: there was none.
func prepare(ctx context.Context, file string) (made bool, err error) {
	// Here SQLite removes a journal from which it could go back. On btrfs that must be synced by itself (EXTRA): a journal that is there again
	// after a loss of power would take the database back to its beginning.
	inner, err := sqlite.NewConnector(dsn(file, "&_synchronous=EXTRA"))
	if err != nil {
		return false, err
	}
	db := sql.OpenDB(inner)
	defer db.Close()
	db.SetMaxOpenConns(1)
	var version, size, tables int
	err = errors.Join(
		db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version),
		db.QueryRowContext(ctx, "PRAGMA page_size").Scan(&size),
		db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'kine'").Scan(&tables))
	if err != nil {
		return false, err
	}
	if version > shape {
		return false, fmt.Errorf("%w: it has shape %d, and this one knows those up to %d; install the newer one again", errNewer, version, shape)
	}
	if version == shape && size == pageSize {
		return false, nil
	}
	// The size of pages can be changed by rewriting the file, and only without a log.
	steps := []string{"PRAGMA journal_mode = DELETE", fmt.Sprintf("PRAGMA page_size = %d", pageSize)}
	if tables == 0 {
		steps = append(steps, "PRAGMA auto_vacuum = INCREMENTAL")
	}
	if err := execute(ctx, db, steps...); err != nil {
		return false, err
	}
	if version != shape {
		if err := reshape(ctx, db, tables > 0); err != nil {
			return false, err
		}
	}
	steps = nil
	if tables > 0 {
		steps = append(steps, "PRAGMA auto_vacuum = INCREMENTAL", "VACUUM")
	}
	return tables == 0, execute(ctx, db, append(steps, "PRAGMA journal_mode = WAL")...) // which it begins with a journal
}

// reshape makes the table, with the rows of the one that is there, in one transaction.
func reshape(ctx context.Context, db *sql.DB, old bool) error {
	var steps []string
	if old {
		steps = append(steps, "ALTER TABLE kine RENAME TO kine_before", "DROP INDEX IF EXISTS kine_name_prev_revision_uindex")
	}
	steps = append(steps, table...)
	if old {
		steps = append(steps, `INSERT INTO kine SELECT id, name, created, deleted, create_revision, prev_revision, lease, value, NULL
			FROM kine_before ORDER BY id`, "DROP TABLE kine_before")
	}
	steps = append(steps, fmt.Sprintf("PRAGMA user_version = %d", shape))
	return transaction(ctx, db, func(tx *sql.Tx) error { return execute(ctx, tx, steps...) })
}

// execute does one statement after the other.
func execute(ctx context.Context, in interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, statements ...string) error {
	for _, s := range statements {
		if _, err := in.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// openDatabase opens a prepared database; it is closed when ctx ends, and writers says when that is done.
func openDatabase(ctx context.Context, file string, writers *sync.WaitGroup) (*generic.Generic, error) {
	inner, err := sqlite.NewConnector(dsn(file, fmt.Sprintf("&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate"+
		"&_pragma=journal_size_limit(%d)&_pragma=wal_autocheckpoint(%d)", logKeep, logBackstop/pageSize)))
	if err != nil {
		return nil, err
	}
	d, err := generic.OpenDB(ctx, writers, "sqlite", preparing{inner},
		generic.ConnectionPoolConfig{MaxIdle: connections, MaxOpen: connections}, "?", false, nil)
	if err != nil {
		return nil, err
	}
	d.LastInsertID = true
	d.LockWrites = true // SQLite has one writer; waiting for a turn here, nobody sleeps in its busy handler
	d.TranslateErr = translate
	d.ErrCode = func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	d.GetSizeSQL = named("GetSize", `SELECT (page_count - freelist_count) * page_size
		FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`)
	d.GetSingleSQL = named("GetSingle", fmt.Sprintf(getLatest, generic.Columns, generic.CurrentRevSQL, generic.CompactRevSQL))
	d.GetSingleValSQL = named("GetSingleVal", fmt.Sprintf(getLatest, generic.WithVal, generic.CurrentRevSQL, generic.CompactRevSQL))
	d.InsertLastInsertIDSQL = named("Insert", `INSERT INTO kine(name, created, deleted, create_revision, prev_revision, lease, value)
		SELECT ?, ?, ?, ?, ?, ?, ? WHERE ? IS NOT NULL`) // the last is where kine would copy the old value from
	d.AfterAllOldValSQL = after("AfterAllOldVal", "")
	d.AfterOldValSQL = after("AfterOldVal", "+name >= ? AND +name < ? AND")
	d.AfterSingleOldValSQL = after("AfterSingleOldVal", "name = ? AND")
	return d, nil
}

// getLatest finds the newest revision of a name at the end of its entries in the index: a later revision has a later
// predecessor.
const getLatest = `SELECT current_rev, compact_rev, %s
	FROM (%s) AS current, (%s) AS compact, kine
	WHERE id = (SELECT id FROM kine WHERE name = ? ORDER BY prev_revision DESC LIMIT 1)
	AND (deleted = 0 OR ?)`

// after asks for what came after a revision. The plus keeps SQLite from walking all that has such a name.
func after(name, where string) *query.Named {
	return named(name, fmt.Sprintf(`SELECT current_rev, compact_rev, %s,
		(SELECT p.value FROM kine AS p WHERE p.id = kine.prev_revision AND kine.name != 'compact_rev_key') AS old_value
		FROM (%s) AS current, (%s) AS compact, kine
		WHERE %s id > ? ORDER BY id ASC`, generic.WithVal, generic.CurrentRevSQL, generic.CompactRevSQL, where))
}

func named(name, text string) *query.Named { return query.New(text, "?", false, name) }

func translate(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code() == lib.SQLITE_CONSTRAINT_UNIQUE {
		return server.ErrKeyExists
	}
	return err
}

// preparing is a driver whose connections keep the statements that they have prepared: kine gives the text each time, and
// to parse it and plan it costs as much as most of its queries themselves.
type preparing struct{ driver.Connector }

func (p preparing) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := c.(sqliteConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T lacks what kine needs of a connection", c), c.Close())
	}
	return &conn{sqliteConn: inner, ready: map[string]driver.Stmt{}}, nil
}
