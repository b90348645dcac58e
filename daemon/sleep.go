package daemon

import (
	"context"
	"time"

	"kith.dev/daemon/idle"
)

// letSleep has the engine sleep while nobody needs it.
func (d *Daemon) letSleep(ctx context.Context) error {
	s := &idle.Sleeper{Engine: d.engine, Uses: &d.uses, After: d.cfg.EngineIdle, May: d.maySleep, Log: d.log}
	return s.Run(ctx)
}

// maySleep decides whether the engine may sleep now.
func (d *Daemon) maySleep(ctx context.Context) (idle.Verdict, error) {
	c := d.cluster.Load()
	switch {
	case c == nil:
		return idle.Verdict{Stay: idle.Starting}, nil
	case !d.engine.Decides():
		return idle.Verdict{Stay: idle.Tether}, nil
	}
	return idle.Look(ctx, c.Client, c.Fresh, c.Client.Now(), time.Now(), d.cfg.EngineIdle)
}
