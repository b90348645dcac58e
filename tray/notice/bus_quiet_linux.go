package notice

import (
	"context"

	"github.com/godbus/dbus/v5"
)

// Where desktops say that their user wants to be left alone, for those that let programs read it. GNOME keeps it in dconf, and keeps what came
// meanwhile in its list; so does Plasma, and says so by a property of its server. Xfce's server (xfce4-notifyd 0.7) shows nothing of it, ever.
const (
	getProperty       = "org.freedesktop.DBus.Properties.Get"
	propertiesChanged = "org.freedesktop.DBus.Properties.PropertiesChanged"

	xfce        = "Xfce Notify Daemon" // the name that its server gives itself
	xfconf      = "org.xfce.Xfconf"
	xfconfPath  = dbus.ObjectPath("/org/xfce/Xfconf")
	xfceChannel = "xfce4-notifyd"
	xfceQuiet   = "/do-not-disturb"
)

// quietMatches are the signals after which the desktop is asked whether its user wants to be left alone.
var quietMatches = [][]dbus.MatchOption{
	{dbus.WithMatchSender(server), dbus.WithMatchInterface("org.freedesktop.DBus.Properties"), dbus.WithMatchObjectPath(serverPath)},
	{dbus.WithMatchSender(xfconf), dbus.WithMatchInterface(xfconf), dbus.WithMatchObjectPath(xfconfPath), dbus.WithMatchArg(0, xfceChannel), dbus.WithMatchArg(1, xfceQuiet)},
}

// ofQuiet reports whether a signal may mean that the desktop is to be asked. Anybody may have sent it, so what it says does not count.
func (b *Bus) ofQuiet(s *dbus.Signal) bool {
	switch s.Name {
	case propertiesChanged:
		return s.Path == serverPath && s.Sender == b.owner && b.owner != ""
	case xfconf + ".PropertyChanged", xfconf + ".PropertyRemoved":
		return s.Path == xfconfPath && b.name == xfce
	}
	return false
}

// readQuiet asks whether the desktop shows nothing at the moment. One that does not say shows everything.
func (b *Bus) readQuiet(ctx context.Context) bool {
	var v dbus.Variant
	quiet := false
	var call *dbus.Call
	if b.name == xfce {
		call = b.conn.Object(xfconf, xfconfPath).CallWithContext(ctx, xfconf+".GetProperty", dbus.FlagNoAutoStart, xfceChannel, xfceQuiet)
	} else {
		call = b.conn.Object(server, serverPath).CallWithContext(ctx, getProperty, dbus.FlagNoAutoStart, server, "Inhibited")
	}
	if call.Store(&v) != nil || v.Store(&quiet) != nil {
		return false
	}
	return quiet
}

// hush notes whether the desktop shows nothing. What still waits for an answer, and came meanwhile, is shown once it does again.
func (b *Bus) hush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	was := b.quiet
	b.quiet = b.readQuiet(ctx)
	b.log.Debug("do not disturb", "on", b.quiet)
	if !was || b.quiet {
		return
	}
	var again []Notice
	for _, n := range b.shown {
		if b.unseen[n.Key] {
			again = append(again, n)
		}
	}
	clear(b.unseen)
	for _, n := range again {
		b.send(ctx, n)
	}
}
