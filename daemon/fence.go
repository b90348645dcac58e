package daemon

import (
	"context"

	"kith.dev/core/fence"
	"kith.dev/core/guestnet"
	"kith.dev/core/netplan"
)

// newFence makes the fence around guests. The engine's ranges must be known.
func (d *Daemon) newFence() (*fence.Fence, error) {
	facts := d.engine.Facts()
	cfg := fence.Config{Tunnel: netplan.Tunnel, Pods: facts.Network.Pods, Services: facts.Network.Services, Node: facts.NodeIP, NodeName: facts.NodeName, DNS: facts.Network.DNS(), IPv6: facts.Network.IPv6, Kernel: &d.kernel, Log: d.log}
	if facts.GuestLinks {
		cfg.Group = guestnet.Group
	}
	if d.cfg.Lease != "" { // a cluster of several nodes, where `kithd node` keeps a fence on each of the others
		cfg.Self = facts.NodeName
	}
	return fence.New(cfg)
}

// fenced runs the engine, with the fence up and the network made before its first guest.
func (d *Daemon) fenced(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if d.fence != nil {
			if err := d.fence.Raise(); err != nil {
				return err
			}
		}
		if d.guests != nil {
			if err := d.guests.Raise(); err != nil {
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
