//go:build linux

package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kith.dev/core/hostnet"
)

const (
	// settle is the shortest time between two looks, so that a burst of events costs two.
	settle = 20 * time.Millisecond
	// again is when to look again after a look that failed.
	again = time.Second
)

// watch has look called now, and after every change of links, routes and nftables, until ctx ends.
func watch(ctx context.Context, kernel *hostnet.Changes, look func() error) error {
	around, stop, err := kernel.Listen(hostnet.Links | hostnet.Routes)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	defer stop()
	tables, forget, err := hostnet.Tables(func([]byte) bool { return true })
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	defer forget()
	for {
		var retry <-chan time.Time
		if err := look(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			retry = time.After(again)
		}
		select {
		case <-time.After(settle):
		case <-ctx.Done():
			return nil
		}
		select {
		case _, ok := <-around:
			if !ok {
				return errors.New("fence: the kernel tells of links and routes no more")
			}
		case _, ok := <-tables:
			if !ok {
				return errors.New("fence: the kernel tells of nftables no more")
			}
		case <-retry:
		case <-ctx.Done():
			return nil
		}
	}
}
