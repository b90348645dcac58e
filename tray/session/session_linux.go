// Package session is the tray's place in the desktop session: there is one tray per session, a second start wakes the first,
// and all ends with the session's bus. tray makes one Session first of all. It must never start a bus: where there is none,
// there is no desktop.
package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/godbus/dbus/v5"
)

// The name on the bus says who is the one tray; what is behind it is freedesktop.org's Desktop Entry Specification,
// "D-Bus activation".
const (
	Name        = "dev.kith.Tray"
	path        = dbus.ObjectPath("/dev/kith/Tray")
	application = "org.freedesktop.Application"
)

// Session is a connection to the session bus.
type Session struct {
	conn      Bus
	activated chan struct{}
}

// Open connects to the session bus. Close it.
func Open() (*Session, error) {
	conn, err := Connect(dbus.SessionBusPrivateNoAutoStartup)
	if err != nil {
		return nil, fmt.Errorf("connect to the session bus: %w (kith-tray belongs into a desktop session; kith-tray --once and kith need none)", err)
	}
	return &Session{conn: conn, activated: make(chan struct{}, 1)}, nil
}

// Bus is the connection, for what else is to be on it.
func (s *Session) Bus() Bus { return s.conn }

// Close leaves the session.
func (s *Session) Close() { s.conn.Close() }

// Activated tells that somebody started the tray a second time.
func (s *Session) Activated() <-chan struct{} { return s.activated }

// Claim makes this the one tray of the session. Where there is one, that one is told, and first is false.
func (s *Session) Claim(ctx context.Context, log *slog.Logger) (first bool, err error) {
	// What is behind the name must be there before the name is.
	if err := s.conn.Export(app{s.activated}, path, application); err != nil {
		return false, fmt.Errorf("answer on the session bus: %w", err)
	}
	reply, err := s.conn.RequestName(Name, dbus.NameFlagDoNotQueue)
	if err != nil {
		return false, fmt.Errorf("take the name %s on the session bus: %w", Name, err)
	}
	if reply != dbus.RequestNameReplyExists {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := s.conn.Object(Name, path).CallWithContext(ctx, application+".Activate", 0, map[string]dbus.Variant{}).Err; err != nil {
		log.Warn("the tray that runs already does not answer", "err", err)
	}
	return false, nil
}

type app struct{ activated chan<- struct{} }

// Activate implements the method of that name.
func (a app) Activate(map[string]dbus.Variant) *dbus.Error {
	select {
	case a.activated <- struct{}{}:
	default:
	}
	return nil
}

// Open implements the method of that name: the tray opens no files, it only shows itself.
func (a app) Open(_ []string, data map[string]dbus.Variant) *dbus.Error { return a.Activate(data) }

// ActivateAction implements the method of that name: the desktop file names no actions.
func (a app) ActivateAction(_ string, _ []dbus.Variant, data map[string]dbus.Variant) *dbus.Error {
	return a.Activate(data)
}
