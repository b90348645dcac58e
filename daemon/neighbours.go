package daemon

import (
	"context"

	"kith.dev/core/api"
	"kith.dev/core/identity"
	"kith.dev/core/peering"
)

// reportNeighbours publishes who comes, who goes, and who answers with another key than before.
func (d *Daemon) reportNeighbours(ctx context.Context) error {
	seen, stopSeen := d.nearby.Watch()
	defer stopSeen()
	moved, stopMoved := d.contacts.Subscribe()
	defer stopMoved()
	there := map[identity.ID]string{}
	warned := map[identity.ID]string{}
	for {
		d.comeAndGo(there)
		d.warnOfKeys(warned)
		d.changed.Ring()
		select {
		case <-seen:
		case <-moved:
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *Daemon) comeAndGo(there map[identity.ID]string) {
	now := map[identity.ID]string{}
	for _, k := range d.directory.all() {
		now[k.id] = k.name
		if _, ok := there[k.id]; !ok {
			d.publish(api.Event{Type: api.EventPeerSeen, Severity: api.SeverityInfo, Peer: k.name, Message: k.name + " is nearby"})
		}
		there[k.id] = k.name
	}
	for id, name := range there {
		if _, ok := now[id]; !ok {
			delete(there, id)
			d.publish(api.Event{Type: api.EventPeerLost, Severity: api.SeverityInfo, Peer: name, Message: name + " is gone"})
		}
	}
}

// warnOfKeys warns once per peer and reason: a key that changed is a new laptop, or somebody in the middle.
func (d *Daemon) warnOfKeys(warned map[identity.ID]string) {
	for _, c := range d.contacts.Snapshot() {
		if c.State != peering.ContactMismatch {
			delete(warned, c.ID)
			continue
		}
		if warned[c.ID] == c.Why {
			continue
		}
		warned[c.ID] = c.Why
		name := c.Name
		if k, err := d.directory.find(c.ID.String()); err == nil {
			name = k.name
		}
		d.log.Warn("refused: another key answers", "peer", name, "why", c.Why)
		d.publish(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning, Peer: name, Message: name + " was refused: " + c.Why})
	}
}
