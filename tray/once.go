package tray

import (
	"context"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/tray/menu"
	"kith.dev/tray/notice"
)

// Once gives the menu as text, and the error that kept the daemon from being asked. It needs no desktop.
func Once(ctx context.Context, socket string) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	daemon := client.New(socket)
	defer daemon.Close()
	var settings notice.Settings
	if path, err := notice.SettingsPath(); err == nil {
		settings, _ = notice.LoadSettings(path) // the default does for a look
	}
	s := menu.State{Link: menu.Up, Kinds: kindsOf(settings)}
	if s.Snapshot, err = daemon.Snapshot(ctx); err != nil {
		var why *api.Error
		s.Link, why = linkOf(err)
		s.Why, err = why, why
	}
	return menu.Text(menu.Of(s)), err
}
