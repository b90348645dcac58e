package tray

import (
	"context"
	"log/slog"
	"os"

	"kith.dev/core/api/client"
	"kith.dev/tray/desktop"
	"kith.dev/tray/notice"
	"kith.dev/tray/panel"
	"kith.dev/tray/session"
)

// Start runs the tray of this user until ctx ends or the user quits. Where a tray runs already, this one is done.
// EXPERIMENTAL: it is built, and never ran on a Mac. main must call it from its own goroutine.
func Start(ctx context.Context, socket, version string, log *slog.Logger) error {
	s, err := session.Open()
	if err != nil {
		return err
	}
	if s == nil {
		log.Info("a tray of this user runs already")
		return nil
	}
	defer s.Close()
	screen, err := notice.Desktop(log)
	if err != nil {
		return err
	}
	path, settings, err := loadSettings(log)
	if err != nil {
		return err
	}
	shown, err := panel.New(First(), log)
	if err != nil {
		return err
	}
	daemon := client.New(socket)
	defer daemon.Close()
	return New(Config{
		Daemon: daemon, Socket: socket, Panel: shown, Notifier: notice.New(screen, daemon, settings, log), Settings: settings, SettingsPath: path,
		Desktop: desktop.New(os.Getenv), Version: version, Log: log,
	}).Run(ctx)
}
