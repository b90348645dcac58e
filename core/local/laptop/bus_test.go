package laptop

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"kith.dev/test/bustest"
)

// watched is a Laptop on a bus of its own, and what it told.
type watched struct {
	*Laptop
	told, woken chan struct{}
}

func watch(t *testing.T, connect func(...dbus.ConnOption) (*dbus.Conn, error)) *watched {
	t.Helper()
	w := &watched{told: make(chan struct{}, 8), woken: make(chan struct{}, 8)}
	w.Laptop = New(Config{
		Connect: connect, Log: slog.New(slog.DiscardHandler),
		Tell: func(context.Context) { w.told <- struct{}{} }, Woke: func() { w.woken <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// becomes waits until the state is as wanted.
func (w *watched) becomes(t *testing.T, what string, is func(State) bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(w.Now()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: %+v", what, w.Now())
		}
	}
}

func (w *watched) hears(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: nothing happened; %+v", what, w.Now())
	}
}

func on(b *bustest.Bus) func(...dbus.ConnOption) (*dbus.Conn, error) {
	return func(o ...dbus.ConnOption) (*dbus.Conn, error) { return dbus.Connect(b.Address, o...) }
}

func logind(t *testing.T, b *bustest.Bus) *bustest.Mock { return b.Mock(t, "logind", login, loginPath) }

// locks are the delay locks of sleep that logind knows of.
func locks(t *testing.T, m *bustest.Mock) (n int) {
	t.Helper()
	var list []struct {
		What, Who, Why, Mode string
		UID, PID             uint32
	}
	if err := m.Call(t, loginManager+".ListInhibitors").Store(&list); err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		if l.What == "sleep" && l.Mode == "delay" && l.Who == "Kith" {
			n++
		}
	}
	return n
}

func TestASuspendIsToldAndItsEndToo(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	w := watch(t, on(b))
	locked := func(s State) bool { return s.Locked }
	w.becomes(t, "a delay lock", locked)
	if n := locks(t, m); n != 1 {
		t.Fatalf("%d locks", n)
	}
	for range 2 {
		m.Emit(t, loginManager, "PrepareForSleep", "b", true)
		w.hears(t, "it falls asleep", w.told)
		for end := time.Now().Add(30 * time.Second); locks(t, m) != 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the lock is kept")
			}
		}
		m.Emit(t, loginManager, "PrepareForSleep", "b", false)
		w.hears(t, "it is awake", w.woken)
		w.becomes(t, "a delay lock again", locked)
	}

	m.Stop()
	w.becomes(t, "logind is gone", func(s State) bool { return !s.Locked && s.IdleUnknown == "logind does not run here" })
	m = logind(t, b)
	w.becomes(t, "another logind", locked)
	if n := locks(t, m); n != 1 {
		t.Errorf("%d locks of the other one", n)
	}
}

// A program that is not logind may send the signal to everybody.
func TestNobodyElseSaysThatTheLaptopSleeps(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	w := watch(t, on(b))
	w.becomes(t, "a delay lock", func(s State) bool { return s.Locked })
	liar := b.Connect(t)
	var names []string
	if err := liar.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	for _, to := range names {
		if !strings.HasPrefix(to, ":") {
			continue
		}
		msg := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(loginPath), dbus.FieldInterface: dbus.MakeVariant(loginManager),
			dbus.FieldMember: dbus.MakeVariant("PrepareForSleep"), dbus.FieldDestination: dbus.MakeVariant(to),
			dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
		}, Body: []any{true}}
		if call := liar.Send(msg, nil); call != nil && call.Err != nil {
			t.Fatal(call.Err)
		}
	}
	// What comes after it on the same way is heard.
	m.Emit(t, loginManager, "PrepareForSleep", "b", false)
	w.hears(t, "logind says that it is awake", w.woken)
	if len(w.told) != 0 {
		t.Error("peers were told that the laptop sleeps, by nobody's word")
	}
}

func TestWhetherSomebodyUsesTheDesktop(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	w := watch(t, on(b))
	w.becomes(t, "a machine without a desktop", func(s State) bool { return s.IdleUnknown == "logind knows of no desktop here" })

	m.Call(t, "org.freedesktop.DBus.Mock.AddSeat", "seat0")
	m.Emit(t, loginManager, "SeatNew", "so", "seat0", desktop)
	w.becomes(t, "a desktop that somebody uses", func(s State) bool { return s.IdleUnknown == "" && s.IdleSince.IsZero() })
	seat := b.Connect(t).Object(login, desktop)
	since := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	m.Update(t, seat, desktopSeat, map[string]any{"IdleHint": true, "IdleSinceHint": uint64(since.UnixMicro())})
	w.becomes(t, "nobody uses it", func(s State) bool { return s.IdleUnknown == "" && s.IdleSince.Equal(since) })
	m.Update(t, seat, desktopSeat, map[string]any{"IdleHint": false, "IdleSinceHint": uint64(time.Now().UnixMicro())})
	w.becomes(t, "somebody is back", func(s State) bool { return s.IdleUnknown == "" && s.IdleSince.IsZero() })

	var session dbus.ObjectPath
	if err := m.Call(t, "org.freedesktop.DBus.Mock.AddSession", "c1", "seat0", uint32(1000), "alice", true).Store(&session); err != nil {
		t.Fatal(err)
	}
	for kind, known := range map[string]bool{"tty": false, "x11": true, "wayland": true, "unspecified": false} {
		m.Update(t, b.Connect(t).Object(login, session), loginSession, map[string]any{"Type": kind})
		m.Update(t, seat, desktopSeat, map[string]any{"IdleHint": true, "IdleSinceHint": uint64(since.UnixMicro())})
		w.becomes(t, "on the screen is "+kind, func(s State) bool {
			return known == (s.IdleUnknown == "") && known == s.IdleSince.Equal(since)
		})
	}
}

func TestWhetherTheNetworkIsMetered(t *testing.T) {
	b := bustest.Start(t)
	w := watch(t, on(b))
	w.becomes(t, "no NetworkManager", func(s State) bool { return s.MeteredUnknown == "NetworkManager does not run here" })
	m := b.Mock(t, "networkmanager", network, networkPath)
	w.becomes(t, "an old one, which does not say it", func(s State) bool { return s.MeteredUnknown == "NetworkManager does not say it" })
	m.Call(t, "org.freedesktop.DBus.Mock.AddProperty", network, "Metered", dbus.MakeVariant(uint32(0)))
	for value, want := range map[uint32]State{
		0: {MeteredUnknown: "NetworkManager does not know it"},
		1: {Metered: true}, 3: {Metered: true}, 2: {}, 4: {},
		99: {MeteredUnknown: "NetworkManager does not know it"},
	} {
		m.Update(t, m.Object, network, map[string]any{"Metered": value})
		w.becomes(t, "metered", func(s State) bool { return s.Metered == want.Metered && s.MeteredUnknown == want.MeteredUnknown })
	}
	m.Stop()
	w.becomes(t, "no NetworkManager any more", func(s State) bool { return !s.Metered && s.MeteredUnknown == "NetworkManager does not run here" })
}

// hung answers no question until its channel is closed.
type hung struct{ asked, answer chan struct{} }

func (h hung) Get(string, string) (dbus.Variant, *dbus.Error) {
	h.asked <- struct{}{}
	<-h.answer
	return dbus.MakeVariant(uint32(1)), nil
}

func TestASuspendWaitsForNoAnswerOfTheNetwork(t *testing.T) {
	b := bustest.Start(t)
	m := logind(t, b)
	w := watch(t, on(b))
	w.becomes(t, "a delay lock", func(s State) bool { return s.Locked })
	h := hung{make(chan struct{}, 8), make(chan struct{})}
	manager := b.Connect(t)
	if err := manager.Export(h, networkPath, "org.freedesktop.DBus.Properties"); err != nil {
		t.Fatal(err)
	}
	if _, err := manager.RequestName(network, 0); err != nil {
		t.Fatal(err)
	}
	w.hears(t, "NetworkManager is asked", h.asked)
	m.Emit(t, loginManager, "PrepareForSleep", "b", true)
	w.hears(t, "it falls asleep", w.told)
	if why := w.Now().MeteredUnknown; why != "NetworkManager does not run here" {
		t.Errorf("peers were told when it had been waited for: %q", why)
	}
	close(h.answer)
	w.becomes(t, "the answer came", func(s State) bool { return s.Metered })
}

func TestABusThatIsNotThereIsLookedForAgain(t *testing.T) {
	b := bustest.Start(t)
	logind(t, b)
	connect := on(b)
	down := make(chan *bustest.Bus, 1)
	w := watch(t, func(o ...dbus.ConnOption) (*dbus.Conn, error) {
		select {
		case other := <-down:
			connect = on(other)
		default:
		}
		return connect(o...)
	})
	w.becomes(t, "a delay lock", func(s State) bool { return s.Locked })
	b.Stop()
	w.becomes(t, "the bus is gone", func(s State) bool { return !s.Locked && s.IdleUnknown == "there is no system bus" })
	other := bustest.Start(t)
	logind(t, other)
	down <- other
	w.becomes(t, "another bus", func(s State) bool { return s.Locked })
}
