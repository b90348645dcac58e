package notice

import (
	"context"

	"github.com/godbus/dbus/v5"
)

// signal acts on what the bus says; anybody may have sent it.
func (b *Bus) signal(ctx context.Context, s *dbus.Signal, clicked func(Answer)) {
	switch {
	case s.Sender == daemonBus && s.Name == daemonBus+".NameOwnerChanged":
		b.settle(ctx)
	case b.owner == "" || s.Sender != b.owner || s.Path != serverPath:
		b.log.Debug("signal of a stranger", "sender", s.Sender, "signal", s.Name)
	case s.Name == server+".ActionInvoked":
		var id uint32
		var action string
		if dbus.Store(s.Body, &id, &action) == nil {
			b.invoked(id, action, clicked)
		}
	case s.Name == server+".NotificationClosed":
		var id, reason uint32
		if dbus.Store(s.Body, &id, &reason) == nil {
			delete(b.shown, id)
		}
	}
}

// invoked takes a click on one of our buttons, once.
func (b *Bus) invoked(id uint32, action string, clicked func(Answer)) {
	n, ours := b.shown[id]
	if !ours || n.About == (Subject{}) || action != actionYes && action != actionNo {
		return
	}
	delete(b.shown, id)
	clicked(Answer{Subject: n.About, Yes: action == actionYes})
}

// settle learns who the server is now, and shows what waited for one.
func (b *Bus) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	b.moved(ctx)
	if b.owner == "" {
		return
	}
	waiting := b.unsent
	b.unsent = nil
	for _, n := range waiting {
		b.send(ctx, n)
	}
}

// moved notes that the server ended, or that another one came: what was on the screen went with the old one, and its numbers mean
// nothing to the new one. It asks instead of believing signals, which may tell of the last server but one.
func (b *Bus) moved(ctx context.Context) {
	var owner string
	if err := b.conn.BusObject().CallWithContext(ctx, daemonBus+".GetNameOwner", 0, server).Store(&owner); err != nil {
		owner = ""
	}
	if owner == b.owner {
		return
	}
	b.log.Debug("notification server changed", "owner", owner)
	b.owner, b.asked = owner, false
	for _, n := range b.shown {
		if n.About != (Subject{}) { // it still waits for an answer
			b.keep(n)
		}
	}
	clear(b.shown)
}

// keep has a notice shown when there is a server again.
func (b *Bus) keep(n Notice) {
	b.unsent = append(b.unsent, n)
	if len(b.unsent) > maxUnsent {
		b.unsent = b.unsent[1:]
	}
}
