package daemon

import (
	"context"
	"sync"
	"time"

	"kith.dev/core/agree/peering"
	"kith.dev/core/agree/sharing"
	"kith.dev/core/base/power"
	"kith.dev/core/base/thermal"
	"kith.dev/core/find/discovery/mdns"
	"kith.dev/core/local/cluster"
	"kith.dev/core/net/wol"
	"kith.dev/core/trust/canonical"
	"kith.dev/core/trust/identity"
)

// ailingAfter is how long the cluster may be away until peers are told. A Kubernetes that is started again is back in
// seconds, and pods run on and answer meanwhile.
const ailingAfter = 40 * time.Second

// health is what this daemon says of itself with every beat: that it runs shows by itself, that it can do its work does not.
type health struct {
	well func() string // why it cannot do its work at this moment; empty when it can

	mu    sync.Mutex
	since time.Time // when it was not well for the first time since it was; zero while it is
}

// ailing tells why this cluster cannot do its work, for people at peers; empty when it can, or could a moment ago.
func (h *health) ailing() string {
	why := h.well()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case why == "":
		h.since = time.Time{}
		return ""
	case h.since.IsZero():
		h.since = time.Now()
	}
	if time.Since(h.since) < ailingAfter {
		return ""
	}
	return why
}

// beat is what peers are told of this laptop every few seconds.
func (d *Daemon) beat() peering.Beat {
	return peering.Beat{Ailing: d.health.ailing(), Asleep: d.engine != nil && d.engine.State().Phase == cluster.Asleep}
}

// used is how this laptop is used now.
func (d *Daemon) used() sharing.Laptop {
	is := d.laptop.Now()
	return sharing.Laptop{
		Power:     power.Read(power.Root),
		Heat:      thermal.Read(thermal.Root),
		IdleSince: is.IdleSince, IdleUnknown: is.IdleUnknown, Metered: is.Metered, MeteredUnknown: is.MeteredUnknown,
	}
}

// sleeps tells peers that this laptop goes to sleep. They take it for the word of all nodes here, so where others go on nothing is said.
func (d *Daemon) sleeps(ctx context.Context) {
	if d.seen().Several(ctx) {
		d.log.Info("peers are not told that this machine goes to sleep: guests may run on other nodes, which go on")
		return
	}
	d.backend.FallsAsleep(ctx)
	if c := d.cluster.Load(); c != nil {
		c.Waking.Sleeps()
	}
	d.peerAPI.Announce(ctx, peering.NoticeSuspending)
}

// lastWord says to a peer that is told of a suspend whether it may wake this machine.
func (d *Daemon) lastWord(to identity.ID) *canonical.Signed {
	c := d.cluster.Load()
	if c == nil {
		return nil
	}
	return c.Waking.LastWord(to)
}

// wakeDevices are the devices of this machine on LANs.
func (d *Daemon) wakeDevices() ([]wol.Device, error) {
	names, err := mdns.LANDevices(d.cfg.Discovery.Interfaces)
	if err != nil {
		return nil, err
	}
	return wol.Devices(names)
}

// awakeTime bounds how long it is tried to tell a peer that this laptop is awake again: who does not hear it finds out by the next call.
const awakeTime = 5 * time.Second

// awake tells peers that this laptop sleeps no more, and looks for them at once.
func (d *Daemon) awake() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), awakeTime)
		defer cancel()
		d.peerAPI.Announce(ctx, peering.NoticeAwake)
	}()
	d.backend.WakesUp()
	if c := d.cluster.Load(); c != nil {
		c.Waking.Woke()
	}
	if d.ports != nil {
		d.ports.Woke()
	}
	d.woke()
}

// works is what costs nothing to know: the engine is asked four times a minute anyway.
func (d *Daemon) works() string {
	switch {
	case d.engine == nil:
		return ""
	case d.engine.State().Phase == cluster.Asleep:
		return "" // it answers who needs it
	case d.engine.State().Phase != cluster.Ready:
		return "its Kubernetes does not answer"
	case d.cluster.Load() == nil:
		return "its controllers of Kith do not run"
	}
	return ""
}
