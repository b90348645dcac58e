package datastore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// events keeps Kubernetes' events few. Each lives for an hour, and where pods come and go that is a hundred megabytes.
type events struct {
	upkeep *upkeep
	kept   int
}

// event is the last revision of one.
type event struct {
	name string
	id   int64
}

// bound deletes the oldest beyond those that are kept, as the end of their life would. It writes what kine would write, many
// in one transaction; kine finds it as it finds what another process on the same database wrote, and tells the watchers.
func (e *events) bound(ctx context.Context) error {
	old, err := e.surplus(ctx)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	for len(old) > 0 {
		batch := old[:min(len(old), compactBatch)]
		old = old[len(batch):]
		if err := e.upkeep.reserve.spend(func() error { return e.delete(ctx, batch) }); err != nil {
			return fmt.Errorf("events: delete %d: %w", len(batch), err)
		}
	}
	return nil
}

func (e *events) surplus(ctx context.Context) (old []event, err error) {
	rows, err := e.upkeep.store.DB.QueryContext(ctx, `SELECT k.name, k.id FROM kine AS k
		JOIN (SELECT MAX(id) AS id FROM kine WHERE name >= '/registry/events/' AND name < '/registry/events0' GROUP BY name) USING (id)
		WHERE k.deleted = 0 ORDER BY id DESC LIMIT -1 OFFSET ?`, e.kept)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close(), rows.Err()) }()
	for rows.Next() {
		var one event
		if err := rows.Scan(&one.name, &one.id); err != nil {
			return nil, err
		}
		old = append(old, one)
	}
	return old, nil
}

// delete passes over those that have changed since: their next revision has the same predecessor.
func (e *events) delete(ctx context.Context, batch []event) error {
	return e.upkeep.write(ctx, func(tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, `INSERT OR IGNORE INTO kine(name, created, deleted, create_revision, prev_revision, lease)
			VALUES(?, 0, 1, 0, ?, 0)`)
		if err != nil {
			return err
		}
		defer insert.Close()
		for _, one := range batch {
			if _, err := insert.ExecContext(ctx, one.name, one.id); err != nil {
				return err
			}
			e.upkeep.wrote(0)
		}
		return nil
	})
}
