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

// Start runs the tray of this desktop session until ctx ends, the user quits or the session ends. Where a tray runs already, that
// one shows itself and this one is done.
func Start(ctx context.Context, socket, version string, log *slog.Logger) error {
	s, err := session.Open()
	if err != nil {
		return err
	}
	defer s.Close()
	if first, err := s.Claim(ctx, log); err != nil || !first {
		return err
	}
	screen, err := notice.Desktop(log)
	if err != nil {
		return err
	}
	path, settings, err := loadSettings(log)
	if err != nil {
		return err
	}
	shown, err := panel.New(s.Conn(), First(), log)
	if err != nil {
		return err
	}
	daemon := client.New(socket)
	defer daemon.Close()
	return New(Config{
		Daemon: daemon, Socket: socket, Panel: shown, Notifier: notice.New(screen, daemon, settings, log), Settings: settings, SettingsPath: path,
		Desktop: desktop.New(os.Getenv), Activated: s.Activated(), Version: version, Log: log,
	}).Run(ctx)
}
