package daemon

import (
	"context"
	"log/slog"
	"time"

	"kith.dev/core/api/client"
)

// Watchdog reports to whoever watches this daemon that it works, until ctx ends: well before patience is over, and only after its own
// local API answered on its socket, which it does for no user while the daemon hangs. Who then hears nothing starts it again.
func (d *Daemon) Watchdog(ctx context.Context, patience time.Duration, alive func() error) {
	c := client.New(d.cfg.Socket)
	watchdog(ctx, d.log, patience, alive, func(ctx context.Context) error {
		defer c.Close()
		_, err := c.Version(ctx)
		return err
	})
}

func watchdog(ctx context.Context, log *slog.Logger, patience time.Duration, alive func() error, answers func(context.Context) error) {
	ticker := time.NewTicker(patience / 2)
	defer ticker.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, patience/5)
		err := answers(asking)
		cancel()
		if err == nil {
			err = alive()
		}
		if ctx.Err() != nil {
			return
		}
		next := ticker.C
		if err != nil {
			// On a machine under load an answer may be late, and for two more there is time.
			log.Warn("kithd does not answer itself on its socket, and will be started again if that lasts", "err", err)
			next = time.After(patience / 60)
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}
