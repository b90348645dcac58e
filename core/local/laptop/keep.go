package laptop

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/godbus/dbus/v5"
)

// ErrCannot says that logind does not run here, or cannot suspend this machine.
var ErrCannot = errors.New("logind, which would suspend this machine, does not run here, or cannot do it")

// wish is what the owner wants, and where the answer goes.
type wish struct {
	off, guests bool
	most        time.Duration
	answer      chan<- error
}

// KeepAwake keeps the machine awake for so long, 0: as long as it may be; with guests, until the last guest ends, when that is sooner. It may be
// called while it is kept awake: what was wanted last counts. The error is ErrCannot, ErrNoGuests, ErrBattery, or logind's.
func (l *Laptop) KeepAwake(ctx context.Context, guests bool, most time.Duration) error {
	return l.want(ctx, wish{guests: guests, most: most})
}

// LetSleep has it kept awake no more; nothing happens when it is not.
func (l *Laptop) LetSleep(ctx context.Context) error {
	err := l.want(ctx, wish{off: true})
	if errors.Is(err, ErrCannot) {
		return nil
	}
	return err
}

func (l *Laptop) want(ctx context.Context, w wish) error {
	if is := l.Now(); !is.CanKeep && !(w.off && is.Kept != Kept{}) { // a logind that starts anew finds the lock of the last one
		return ErrCannot
	}
	answer := make(chan error, 1)
	w.answer = answer
	select {
	case l.wishes <- w:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wanted does what the owner wants.
func (b *bus) wanted(ctx context.Context, w wish) {
	var err error
	switch {
	case w.off:
		b.awake.end(EndedOwner)
	case !b.Now().CanKeep:
		err = ErrCannot
	default:
		err = b.awake.keep(ctx, w.guests, w.most)
	}
	b.lookAwake(ctx)
	w.answer <- err
}

// lookAwake looks whether the machine is to be kept awake still, and has what may change that wake this goroutine.
func (b *bus) lookAwake(ctx context.Context) {
	var moved <-chan struct{}
	if b.awake.kept.Guests && b.cfg.GuestsMoved != nil {
		moved = b.cfg.GuestsMoved() // before they are counted
	}
	next := b.awake.look()
	if b.awake.lock == nil {
		b.guestsMoved, b.due = nil, nil
		b.watchBattery(ctx, false)
		return
	}
	b.watchBattery(ctx, true)
	every := batteryEvery
	if b.owners[upower] != "" {
		every = batteryAtLeast
	}
	b.guestsMoved, b.due = moved, time.After(min(next, every))
}

// watchBattery has UPower tell of the batteries, only while that matters. What it says is read from the kernel, as conditions of policies are.
func (b *bus) watchBattery(ctx context.Context, on bool) {
	if on == b.watching {
		return
	}
	b.watching = on
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchSender(daemonBus), dbus.WithMatchInterface(daemonBus), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, upower)},
		{dbus.WithMatchSender(upower), dbus.WithMatchObjectPath(upowerPath), dbus.WithMatchMember("PropertiesChanged")},
		{dbus.WithMatchSender(upower), dbus.WithMatchObjectPath(upowerBatteries), dbus.WithMatchMember("PropertiesChanged")},
	} {
		do := b.conn.RemoveMatchSignalContext
		if on {
			do = b.conn.AddMatchSignalContext
		}
		if err := do(ctx, match...); err != nil {
			b.cfg.Log.Debug("UPower is not listened to", "err", err) // the clock has the batteries looked at
			delete(b.owners, upower)
			return
		}
	}
	delete(b.owners, upower)
	var owner string
	if on && b.call(ctx, daemonBus, "/org/freedesktop/DBus", daemonBus+".GetNameOwner", upower).Store(&owner) == nil {
		b.owners[upower] = owner
	}
}

// block takes the lock that stops suspends, the owner's too, and what a closed lid does. That of `sleep` alone would not do for the lid, which
// logind suspends for all the same (LidSwitchIgnoreInhibited in logind.conf(5)); that of the lid alone would not do for a desktop whose user is idle.
func (b *bus) block(ctx context.Context) (io.Closer, error) {
	return b.inhibitor(ctx, "sleep:handle-lid-switch", "keeps this laptop awake, as its owner asked: kith awake --off ends it", "block")
}

// readCanSuspend notes whether logind could suspend this machine at all: there is nothing to keep awake otherwise.
func (b *bus) readCanSuspend(ctx context.Context) {
	can := ""
	if b.owners[login] != "" {
		if err := b.call(ctx, login, loginPath, loginManager+".CanSuspend").Store(&can); err != nil {
			b.cfg.Log.Debug("logind does not say whether it can suspend", "err", err)
		}
	}
	b.set(func(now *State) { now.CanKeep = can != "" && can != "na" })
}
