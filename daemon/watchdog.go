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
		asking, cancel := context.WithTimeout(ctx, patience/4)
		err := answers(asking)
		cancel()
		if err == nil {
			err = alive()
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("kithd does not answer itself on its socket, and will be started again if that lasts", "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
