package directory

import (
	"context"

	"kith.dev/core/agree/presence"
	"kith.dev/core/api"
	"kith.dev/core/trust/identity"
)

// Report publishes who comes, who goes, and who answers with another key than before, and calls changed whenever one may have.
func (d *Directory) Report(ctx context.Context, publish func(api.Event), changed func()) error {
	there := map[identity.ID]string{}
	warned := map[identity.ID]string{}
	for {
		seen, moved := d.nearby.Changed(), d.contacts.Changed()
		d.comeAndGo(there, publish)
		d.warnOfKeys(warned, publish)
		changed()
		select {
		case <-seen:
		case <-moved:
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *Directory) comeAndGo(there map[identity.ID]string, publish func(api.Event)) {
	now := map[identity.ID]string{}
	for _, k := range d.All() {
		now[k.ID] = k.Name
		if _, ok := there[k.ID]; !ok {
			publish(api.Event{Type: api.EventPeerSeen, Severity: api.SeverityInfo, Peer: k.Name, Message: k.Name + " is nearby"})
		}
		there[k.ID] = k.Name
	}
	for id, name := range there {
		if _, ok := now[id]; !ok {
			delete(there, id)
			publish(api.Event{Type: api.EventPeerLost, Severity: api.SeverityInfo, Peer: name, Message: name + " is gone"})
		}
	}
}

// warnOfKeys warns once per peer and reason: a key that changed is a new laptop, or somebody in the middle.
func (d *Directory) warnOfKeys(warned map[identity.ID]string, publish func(api.Event)) {
	for _, k := range d.All() {
		why := k.Contact.Why
		switch {
		case k.Contact.Cause != presence.OtherKey:
			delete(warned, k.ID)
			continue
		case warned[k.ID] == why:
			continue
		}
		warned[k.ID] = why
		d.log.Warn("refused: another key answers", "peer", k.Name, "why", why)
		publish(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning, Peer: k.Name, Message: k.Name + " was refused: " + why})
	}
}
