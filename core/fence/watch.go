//go:build linux

package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

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
	socket, err := hostnet.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("fence: watch nftables: %w", err)
	}
	defer socket.Close()
	tables, failed := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		failed <- hostnet.Read(socket, func([]byte) {
			select {
			case tables <- struct{}{}:
			default:
			}
		})
	}()
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
		case <-tables:
		case <-retry:
		case err := <-failed:
			return fmt.Errorf("fence: %w", err)
		case <-ctx.Done():
			return nil
		}
	}
}
