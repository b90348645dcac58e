//go:build linux

package nft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/nftables"

	"kith.dev/core/hostnet"
)

// Keeper keeps tables in the kernel. It does one thing at a time: its owner has a lock.
type Keeper struct {
	Log     *slog.Logger
	Options []nftables.ConnOption // for tests

	written []Table // by this process; nil when what is in the kernel is somebody else's
	size    uint32  // of these tables, as the kernel counts
}

// Keep has the kernel hold tables, which are always of the same names; packets see all of a change or nothing. What does not differ from
// the last time is left alone. Tables that an earlier process left are replaced, but only if this one is sure of what should be there.
func (k *Keeper) Keep(is []Table, sure bool) error {
	size, err := k.standing(is)
	if err != nil {
		return err
	}
	was := k.written
	if was != nil && size != k.size {
		k.Log.Warn("an nftables table was taken away or changed, putting it up again", "table", is[0].Name)
		was, size = nil, 0
	}
	if was == nil && size != 0 && !sure {
		return nil
	}
	k.written = nil // whatever is there after an error: next time all of it
	if was != nil {
		err = k.write(was, is)
	}
	if was == nil || err != nil { // somebody may have taken it away just now
		err = k.write(nil, is)
	}
	if err != nil {
		return err
	}
	if k.size, err = k.standing(is); err == nil {
		k.written = is
	}
	return err
}

// write changes the tables or, if it is not known what was, puts them in place of whatever was, in one transaction.
func (k *Keeper) write(was, is []Table) error {
	c, err := nftables.New(k.Options...)
	if err != nil {
		return err
	}
	for i, t := range is {
		var old Table
		if was != nil {
			old = was[i]
		} else {
			c.AddTable(t.of()) // so that there is one to delete
			c.DelTable(t.of())
			c.AddTable(t.of())
		}
		if err := t.change(c, old); err != nil {
			return err
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write nftables table %s: %w", is[0].Name, err)
	}
	return nil
}

// standing gives how full the tables are, 0 unless all of them are there.
func (k *Keeper) standing(tables []Table) (size uint32, err error) {
	c, err := nftables.New(k.Options...)
	if err != nil {
		return 0, err
	}
	list, err := c.ListTables()
	if err != nil {
		return 0, fmt.Errorf("list nftables tables: %w", err)
	}
	found := 0
	for _, t := range list {
		if slices.ContainsFunc(tables, func(is Table) bool { return is.Name == t.Name && is.Family == t.Family }) {
			found++
			size += t.Use
		}
	}
	if found < len(tables) {
		return 0, nil
	}
	return size, nil
}

const (
	// settle is the shortest time between two looks, so that a burst of events costs two.
	settle = 20 * time.Millisecond
	// again is when to look again after a look that failed.
	again = time.Second
)

// Watch has look called now, and after every change of tables of these names and every token of around, until ctx ends.
func Watch(ctx context.Context, around <-chan struct{}, look func() error, names ...string) error {
	tables, stop, err := hostnet.Tables(func(news []byte) bool {
		return slices.ContainsFunc(names, func(name string) bool { return bytes.Contains(news, append([]byte(name), 0)) })
	})
	if err != nil {
		return err
	}
	defer stop()
	for {
		var retry <-chan time.Time
		if err := look(); err != nil {
			retry = time.After(again)
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return nil
		}
		open := true
		select {
		case _, open = <-around:
		case _, open = <-tables:
		case <-retry:
		case <-ctx.Done():
			return nil
		}
		if !open {
			return errors.New("the kernel tells of its network no more")
		}
	}
}
