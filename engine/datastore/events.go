package datastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/server"
)

// events keeps Kubernetes' events few. Each lives for an hour, and where pods come and go that is a hundred megabytes.
type events struct {
	store   *generic.Generic
	backend server.Backend
	kept    int
}

// bound deletes the oldest beyond those that are kept, as their end of life would.
func (e *events) bound(ctx context.Context) error {
	names, err := e.surplus(ctx)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	for _, name := range names {
		if _, _, _, err := e.backend.Delete(ctx, name, 0); err != nil {
			return fmt.Errorf("events: delete %s: %w", name, err)
		}
	}
	return nil
}

func (e *events) surplus(ctx context.Context) (names []string, err error) {
	rows, err := e.store.DB.QueryContext(ctx, `SELECT k.name FROM kine AS k
		JOIN (SELECT MAX(id) AS id FROM kine WHERE name >= '/registry/events/' AND name < '/registry/events0' GROUP BY name) USING (id)
		WHERE k.deleted = 0 ORDER BY id DESC LIMIT -1 OFFSET ?`, e.kept)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close(), rows.Err()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}
