package laptop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"
)

// What is watched: https://www.freedesktop.org/software/systemd/man/latest/org.freedesktop.login1.html and
// https://networkmanager.dev/docs/api/latest/gdbus-org.freedesktop.NetworkManager.html
const (
	daemonBus = "org.freedesktop.DBus"

	login        = "org.freedesktop.login1"
	loginPath    = dbus.ObjectPath("/org/freedesktop/login1")
	loginManager = "org.freedesktop.login1.Manager"
	// desktop is the seat that a machine's own screen and keyboard belong to, and the only one that its owner is at (sd-login(3)).
	desktop      = dbus.ObjectPath("/org/freedesktop/login1/seat/seat0")
	desktopSeat  = "org.freedesktop.login1.Seat"
	loginSession = "org.freedesktop.login1.Session"

	network     = "org.freedesktop.NetworkManager"
	networkPath = dbus.ObjectPath("/org/freedesktop/NetworkManager")

	upower          = "org.freedesktop.UPower"
	upowerPath      = dbus.ObjectPath("/org/freedesktop/UPower")
	upowerBatteries = dbus.ObjectPath("/org/freedesktop/UPower/devices/DisplayDevice")

	getProperty       = "org.freedesktop.DBus.Properties.Get"
	propertiesChanged = "org.freedesktop.DBus.Properties.PropertiesChanged"
	nameOwnerChanged  = daemonBus + ".NameOwnerChanged"
	prepareForSleep   = loginManager + ".PrepareForSleep"
	seatNew           = loginManager + ".SeatNew"
)

// answerTime bounds each call.
const answerTime = 5 * time.Second

// bus is a connection and who is on it. A signal counts only from whom it is expected of: any program may send any signal to anybody.
type bus struct {
	*Laptop
	conn   *dbus.Conn
	sleep  sleep
	awake  awake
	owners map[string]string // unique names of login and network, and of upower while that matters; "" where there is none
	// metered is where network's answer comes, nil while it was not asked. A suspend does not wait for it.
	metered <-chan *dbus.Call
	enough  context.CancelFunc // gives the question up

	// While the machine is kept awake: when guests may have come or gone, and when to look whether it still is to be; and whether UPower is watched.
	guestsMoved <-chan struct{}
	due         <-chan time.Time
	watching    bool
}

// follow connects, and watches until the connection or ctx ends.
func (l *Laptop) follow(ctx context.Context) error {
	conn, err := l.cfg.Connect(dbus.WithContext(ctx))
	if err != nil {
		return err
	}
	defer conn.Close()
	b := &bus{Laptop: l, conn: conn, owners: map[string]string{}, enough: func() {}}
	defer func() { b.enough() }()
	b.sleep = sleep{inhibit: b.inhibit, tell: l.cfg.Tell, woke: l.cfg.Woke, log: l.cfg.Log}
	defer b.sleep.gone()
	b.awake = awake{inhibit: b.block, guests: l.cfg.guests, power: l.cfg.Power, told: l.kept, log: l.cfg.Log}
	defer func() {
		if ctx.Err() != nil {
			b.awake.end(EndedStopped)
		}
		b.awake.end(EndedLogind)
	}()
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchSender(daemonBus), dbus.WithMatchInterface(daemonBus), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, login)},
		{dbus.WithMatchSender(daemonBus), dbus.WithMatchInterface(daemonBus), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, network)},
		{dbus.WithMatchSender(login), dbus.WithMatchInterface(loginManager), dbus.WithMatchMember("PrepareForSleep")},
		{dbus.WithMatchSender(login), dbus.WithMatchInterface(loginManager), dbus.WithMatchMember("SeatNew")},
		{dbus.WithMatchSender(login), dbus.WithMatchObjectPath(desktop), dbus.WithMatchMember("PropertiesChanged")},
		{dbus.WithMatchSender(network), dbus.WithMatchObjectPath(networkPath), dbus.WithMatchMember("PropertiesChanged")},
	} {
		if err := conn.AddMatchSignalContext(ctx, match...); err != nil {
			return fmt.Errorf("watch the system bus: %w", err)
		}
	}
	for _, service := range []string{login, network} {
		var owner string
		err := b.call(ctx, daemonBus, "/org/freedesktop/DBus", daemonBus+".GetNameOwner", service).Store(&owner)
		if nobody := (dbus.Error{}); err != nil && !(errors.As(err, &nobody) && nobody.Name == daemonBus+".Error.NameHasNoOwner") {
			return fmt.Errorf("ask the system bus for %s: %w", service, err)
		}
		b.owned(ctx, service, owner)
	}
	for {
		select {
		case s, open := <-signals:
			if !open {
				return errors.New("it ended the connection")
			}
			b.heard(ctx, s)
		case answer := <-b.metered:
			b.metered = nil
			b.enough()
			b.readMetered(answer)
		case w := <-l.wishes:
			b.wanted(ctx, w)
		case <-b.guestsMoved: // and more may at once
			b.guestsMoved, b.due = nil, time.After(guestsSettle)
		case <-b.due:
			b.lookAwake(ctx)
		case <-conn.Context().Done():
			return errors.New("the connection ended")
		}
	}
}

// call asks a service; one that does not run is not started for it.
func (b *bus) call(ctx context.Context, service string, path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return b.conn.Object(service, path).CallWithContext(ctx, method, dbus.FlagNoAutoStart, args...)
}

// heard takes a signal.
func (b *bus) heard(ctx context.Context, s *dbus.Signal) {
	switch {
	case s.Sender == daemonBus && s.Name == nameOwnerChanged:
		var service, old, owner string
		if dbus.Store(s.Body, &service, &old, &owner) == nil && (service == login || service == network || service == upower && b.watching) {
			b.owned(ctx, service, owner)
		}
	case s.Sender != "" && s.Sender == b.owners[login]:
		var starts bool
		switch {
		case s.Name == prepareForSleep && dbus.Store(s.Body, &starts) == nil && starts:
			b.sleep.falls(ctx)
			b.noteLock()
		case s.Name == prepareForSleep:
			b.sleep.rises(ctx)
			b.noteLock()
			b.lookAwake(ctx) // the time may be up
		case s.Name == seatNew, s.Name == propertiesChanged && s.Path == desktop:
			b.readIdle(ctx)
		}
	case s.Sender != "" && s.Sender == b.owners[network] && s.Name == propertiesChanged && s.Path == networkPath:
		b.askMetered(ctx)
	case s.Sender != "" && s.Sender == b.owners[upower] && s.Name == propertiesChanged:
		b.lookAwake(ctx)
	}
}

// owned notes who a service is from now on; "" when it is gone.
func (b *bus) owned(ctx context.Context, service, owner string) {
	b.owners[service] = owner
	switch service {
	case login:
		b.sleep.gone() // another one knows of no lock
		b.readCanSuspend(ctx)
		if owner != "" {
			b.sleep.hold(ctx)
			b.awake.renew(ctx)
		}
		b.noteLock()
		b.readIdle(ctx)
		b.lookAwake(ctx)
	case network:
		b.askMetered(ctx)
	case upower:
		b.lookAwake(ctx)
	}
}

func (b *bus) noteLock() {
	locked := b.sleep.lock != nil
	b.set(func(now *State) { now.Locked = locked })
}

// inhibit takes a delay lock.
func (b *bus) inhibit(ctx context.Context) (io.Closer, error) {
	return b.inhibitor(ctx, "sleep", "tells peers that this laptop goes to sleep", "delay")
}

// inhibitor takes a lock, which is given up by closing it.
func (b *bus) inhibitor(ctx context.Context, what, why, mode string) (io.Closer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	// The call is not given up with ctx: what logind gives too late would be a lock that nobody knows of, and nobody closes.
	answer := b.conn.Object(login, loginPath).Go(loginManager+".Inhibit", dbus.FlagNoAutoStart, nil, what, "Kith", why, mode).Done
	given := func(call *dbus.Call) (io.Closer, error) {
		var fd dbus.UnixFD
		if err := call.Store(&fd); err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), mode+" lock"), nil
	}
	select {
	case call := <-answer:
		return given(call)
	case <-ctx.Done():
		go func() { // until it answers, or the connection ends
			if lock, err := given(<-answer); err == nil {
				lock.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// readIdle reads since when nobody uses the desktop.
func (b *bus) readIdle(ctx context.Context) {
	var idle bool
	var micros uint64
	why := ""
	if b.owners[login] == "" {
		why = "logind does not run here"
	} else if err := b.property(ctx, login, desktop, desktopSeat, "IdleHint", &idle); err != nil {
		why = "logind knows of no desktop here"
		b.cfg.Log.Debug(why, "err", err)
	} else if err := b.property(ctx, login, desktop, desktopSeat, "IdleSinceHint", &micros); err != nil {
		why = "logind does not say since when"
		b.cfg.Log.Debug(why, "err", err)
	} else if kind, err := b.onScreen(ctx); err != nil {
		why = "logind does not say what is on the screen"
		b.cfg.Log.Debug(why, "err", err)
	} else if !slices.Contains([]string{"", "x11", "wayland", "mir"}, kind) { // logind goes by the terminal's time of access, and sends no signal
		why = "a text console is on the screen, and logind does not tell when that is used"
	}
	var since time.Time
	if idle && why == "" {
		since = time.UnixMicro(int64(min(micros, 1<<62)))
	}
	b.set(func(now *State) { now.IdleSince, now.IdleUnknown = since, why })
}

// onScreen is the type of the session that the desktop shows; "" where nobody is logged in.
func (b *bus) onScreen(ctx context.Context) (kind string, err error) {
	var shown struct {
		ID   string
		Path dbus.ObjectPath
	}
	if err := b.property(ctx, login, desktop, desktopSeat, "ActiveSession", &shown); err != nil || shown.ID == "" {
		return "", err
	}
	err = b.property(ctx, login, shown.Path, loginSession, "Type", &kind)
	return kind, err
}

// askMetered asks whether the network is paid for by the amount.
func (b *bus) askMetered(ctx context.Context) {
	b.enough()
	b.metered = nil
	if b.owners[network] == "" {
		b.set(func(now *State) { now.Metered, now.MeteredUnknown = false, "NetworkManager does not run here" })
		return
	}
	ctx, b.enough = context.WithTimeout(ctx, answerTime)
	b.metered = b.conn.Object(network, networkPath).GoWithContext(ctx, getProperty, dbus.FlagNoAutoStart, nil, network, "Metered").Done
}

// readMetered takes the answer. What NetworkManager guesses counts as known, as it does for other programs.
func (b *bus) readMetered(answer *dbus.Call) {
	var v dbus.Variant
	var metered uint32
	why := ""
	err := answer.Store(&v)
	if err == nil {
		err = v.Store(&metered)
	}
	if err != nil {
		why = "NetworkManager does not say it"
		b.cfg.Log.Debug(why, "err", err)
	}
	yes := false
	switch metered { // NMMetered
	case 1, 3:
		yes = true
	case 2, 4:
	default:
		if why == "" {
			why = "NetworkManager does not know it"
		}
	}
	b.set(func(now *State) { now.Metered, now.MeteredUnknown = yes, why })
}

// property reads one property into a value of its type.
func (b *bus) property(ctx context.Context, service string, path dbus.ObjectPath, of, name string, into any) error {
	var v dbus.Variant
	if err := b.call(ctx, service, path, getProperty, of, name).Store(&v); err != nil {
		return err
	}
	return v.Store(into)
}
