package datastore

import (
	"context"
	"database/sql/driver"
	"errors"
)

// statementsKept bounds what a connection keeps. kine has two dozen statements, some of them with several limits.
const statementsKept = 64

// sqliteConn is what the driver's connection can do.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// statement is what the driver's statement can do.
type statement interface {
	driver.StmtExecContext
	driver.StmtQueryContext
}

// conn keeps its prepared statements. database/sql uses a connection from one goroutine at a time.
type conn struct {
	sqliteConn
	ready map[string]driver.Stmt // by text; not those in use
}

func (c *conn) Close() error {
	var err error
	for _, s := range c.ready {
		err = errors.Join(err, s.Close())
	}
	clear(c.ready)
	return errors.Join(err, c.sqliteConn.Close())
}

// take gives a statement to its one user, who gives it back.
func (c *conn) take(ctx context.Context, text string) (driver.Stmt, error) {
	if s, ok := c.ready[text]; ok {
		delete(c.ready, text)
		return s, nil
	}
	return c.PrepareContext(ctx, text)
}

// give keeps the statement for the next one, unless it failed: then what state it is in is not worth knowing.
func (c *conn) give(text string, s driver.Stmt, failed error) error {
	if _, twice := c.ready[text]; failed != nil || twice || len(c.ready) >= statementsKept {
		return s.Close()
	}
	c.ready[text] = s
	return nil
}

func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.take(ctx, text)
	if err != nil {
		return nil, err
	}
	result, err := s.(statement).ExecContext(ctx, args)
	return result, errors.Join(err, c.give(text, s, err))
}

func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.take(ctx, text)
	if err != nil {
		return nil, err
	}
	inner, err := s.(statement).QueryContext(ctx, args)
	if err != nil {
		return nil, errors.Join(err, c.give(text, s, err))
	}
	return &rows{Rows: inner, done: func(err error) error { return c.give(text, s, err) }}, nil
}

// rows give their statement back when they are closed.
type rows struct {
	driver.Rows
	done func(error) error
}

func (r *rows) Close() error {
	if r.done == nil {
		return nil
	}
	err := r.Rows.Close()
	err = errors.Join(err, r.done(err))
	r.done = nil
	return err
}
