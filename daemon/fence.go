package daemon

import (
	"context"
	"net/netip"

	"kith.dev/core/fence"
	"kith.dev/daemon/backend"
)

// newFence makes the fence around guests. The engine's ranges must be known.
func (d *Daemon) newFence() (*fence.Fence, error) {
	cfg := fence.Config{
		Tunnel: gatewayDevice, Pods: d.engine.PodRange(), Services: d.engine.ServiceRange(), Node: d.engine.NodeIP(),
		DNS: backend.ClusterDNS(d.engine.ServiceRange()).Addr(), Log: d.log,
	}
	if d.marksGuests() {
		cfg.Group = fence.GuestGroup
	}
	return fence.New(cfg)
}

// marksGuests tells whether the engine puts guests behind links of their own.
func (d *Daemon) marksGuests() bool {
	_, ok := d.engine.(interface{ GuestRange() netip.Prefix })
	return ok
}

// fenced runs the engine, with the fence up before its first guest.
func (d *Daemon) fenced(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if d.fence != nil {
			if err := d.fence.Raise(); err != nil {
				return err
			}
		}
		return run(ctx)
	}
}

// followGuests gives the fence of this cluster.
func (d *Daemon) followGuests(ctx context.Context) (*fence.Fence, error) {
	if d.fence != nil {
		return d.fence, nil
	}
	f, err := d.newFence()
	if err == nil {
		go d.keep(ctx, "the fence around guests", f.Run)
	}
	return f, err
}
