package tray

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"kith.dev/core/api/client"
	"kith.dev/tray/desktop"
	"kith.dev/tray/notice"
	"kith.dev/tray/panel"
	"kith.dev/tray/session"
)

// Start runs the tray of this desktop session until ctx ends, the user quits or the session ends. Where a tray runs already, that
// one shows itself and this one is done. On macOS main must call it from its own goroutine.
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
	path, err := notice.SettingsPath()
	if err != nil {
		return fmt.Errorf("the tray's settings: %w", err)
	}
	settings, err := notice.LoadSettings(path)
	if err != nil { // as good as none
		log.Warn("the tray's settings are not used", "err", err)
	}
	shown, err := panel.New(s.Bus(), First(), log)
	if err != nil {
		return err
	}
	programs := desktop.New(os.Getenv)
	go offerLogin(ctx, programs, log)
	daemon := client.New(socket)
	defer daemon.Close()
	return New(Config{
		Daemon: daemon, Socket: socket, Panel: shown, Notifier: notice.New(screen, daemon, settings, log), Settings: settings, SettingsPath: path,
		Desktop: programs, Activated: s.Activated(), Getenv: os.Getenv, Version: version, Log: log,
	}).Run(ctx)
}
