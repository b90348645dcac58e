package panel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	watcher     = "org.kde.StatusNotifierWatcher"
	watcherPath = dbus.ObjectPath("/StatusNotifierWatcher")
	hostSignal  = watcher + ".StatusNotifierHostRegistered"
	noHost      = watcher + ".StatusNotifierHostUnregistered"
	// answer bounds a call to a panel: one that hangs is one that is not there.
	answer = 5 * time.Second
)

// ErrBusGone is why Run ends when the session ends.
var ErrBusGone = errors.New("the session bus is gone")

// Run has the icon shown by whatever panel there is, until ctx ends or the bus goes: it registers the icon with each watcher that comes.
// The watch for owners begins before the first look, so none comes unnoticed between the two; a watcher that has its name before it
// answers is asked again.
func (p *Panel) Run(ctx context.Context) error {
	signals := make(chan *dbus.Signal, 64)
	p.conn.Signal(signals)
	defer p.conn.RemoveSignal(signals)
	for _, match := range [][]dbus.MatchOption{
		{
			dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchInterface("org.freedesktop.DBus"),
			dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, watcher),
		},
		{dbus.WithMatchSender(watcher), dbus.WithMatchInterface(watcher)},
	} {
		if err := p.conn.AddMatchSignalContext(ctx, match...); err != nil {
			return p.ended(ctx, err)
		}
		defer p.conn.RemoveMatchSignal(match...)
	}
	var at string           // the watcher that has the icon
	var known, hosted bool  // what was told last
	var again time.Duration // until the next try; 0 is none
	for {
		owner, host, err := p.register(ctx, at)
		switch at = owner; {
		case err == nil:
			again = 0
		case p.conn.Context().Err() != nil || ctx.Err() != nil:
			return p.ended(ctx, err)
		default:
			again = min(max(2*again, 50*time.Millisecond), 5*time.Second)
			p.log.Debug("the panel did not take the icon, trying again", "err", err)
		}
		if !known || host != hosted {
			known, hosted = true, host
			p.tell(host)
		}
		left, err := p.wait(ctx, signals, again)
		if err != nil {
			return err
		}
		if left == at { // it may be back by now, without the icon
			at = ""
		}
	}
}

// register has the icon shown by the watcher there is, unless it is the one at. It gives who has it now, and whether
// somebody shows it.
func (p *Panel) register(ctx context.Context, at string) (owner string, host bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	if err := p.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, watcher).Store(&owner); err != nil {
		var dbusErr dbus.Error
		if errors.As(err, &dbusErr) && dbusErr.Name == "org.freedesktop.DBus.Error.NameHasNoOwner" {
			return "", false, nil
		}
		return "", false, err
	}
	object := p.conn.Object(owner, watcherPath)
	if owner != at {
		p.menu.close() // if it was open, then in another panel
		if err := object.CallWithContext(ctx, watcher+".RegisterStatusNotifierItem", 0, string(itemPath)).Err; err != nil {
			return "", false, fmt.Errorf("register the icon: %w", err)
		}
		p.log.Debug("the panel has the icon", "watcher", owner)
	}
	var has dbus.Variant
	if err := object.CallWithContext(ctx, propertiesInterface+".Get", 0, watcher, "IsStatusNotifierHostRegistered").Store(&has); err != nil {
		return owner, true, nil // it took the icon; that it cannot tell more is no reason to doubt
	}
	host, ok := has.Value().(bool)
	return owner, host || !ok, nil
}

// wait returns when it is worth looking again: a watcher came or went, a host did, or again has passed. It gives who was
// the watcher before.
func (p *Panel) wait(ctx context.Context, signals <-chan *dbus.Signal, again time.Duration) (left string, err error) {
	var timer <-chan time.Time
	if again > 0 {
		timer = time.After(again)
	}
	for {
		select {
		case s, ok := <-signals:
			if !ok {
				return "", ErrBusGone
			}
			switch s.Name {
			case "org.freedesktop.DBus.NameOwnerChanged":
				if len(s.Body) == 3 && s.Body[0] == watcher {
					left, _ = s.Body[1].(string)
					return left, nil
				}
			case hostSignal, noHost:
				return "", nil
			}
		case <-timer:
			return "", nil
		case <-p.conn.Context().Done():
			return "", ErrBusGone
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (p *Panel) ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.conn.Context().Err() != nil:
		return ErrBusGone
	}
	return fmt.Errorf("watch for panels: %w", err)
}

// tell replaces what was not read yet.
func (p *Panel) tell(hosted bool) {
	select {
	case <-p.hosted:
	default:
	}
	p.hosted <- hosted
}
