package discovery

import (
	"context"
	"slices"
)

// WatchLAN calls changed whenever LANAddresses gives others than before, until ctx ends. Between two changes nothing
// is asked.
func WatchLAN(ctx context.Context, patterns []string, changed func()) error {
	before, err := LANAddresses(patterns)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signal := make(chan struct{}, 1)
	failed := make(chan error, 1)
	go func() { failed <- watchInterfaces(ctx, signal) }()
	for {
		select {
		case <-signal:
			now, err := LANAddresses(patterns)
			if err != nil {
				return err
			}
			if !slices.Equal(before, now) {
				before = now
				changed()
			}
		case err := <-failed:
			return err
		}
	}
}
