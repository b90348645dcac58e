package daemon

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 500 * time.Millisecond
	longest    = 30 * time.Second
)

// supervise runs something for as long as ctx lasts: when it fails it is run again, after a pause that grows
// with every failure in a row and has some jitter.
func supervise(ctx context.Context, log *slog.Logger, name string, run func(context.Context) error) {
	pause := firstPause
	for {
		began := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longest {
			pause = firstPause
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		log.Warn(name+" failed, will be started again", "err", err, "in", pause.String())
		select {
		case <-time.After(pause + rand.N(pause/4)):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longest)
	}
}
