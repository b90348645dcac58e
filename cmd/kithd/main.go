// Command kithd is the daemon: see package kith.dev/daemon.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"kith.dev/core/places"
	"kith.dev/core/version"
	"kith.dev/daemon"
	"kith.dev/daemon/config"
)

// memoryLimit keeps WireGuard's packet buffers, which grow under load and are given back late, within bounds. It is soft.
const memoryLimit = 160 << 20

// exitConfig is EX_CONFIG of sysexits.h: what kithd was told is not understood, and starting it again helps nothing. The systemd
// unit knows the number.
const exitConfig = 78

func main() {
	understood := false
	kithd := config.Command(version.Version, func(ctx context.Context, cfg config.Config) error {
		understood = true
		return run(ctx, cfg)
	})
	if err := kithd.Execute(); err != nil {
		complain(err)
		if !understood {
			os.Exit(exitConfig)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config.Config) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	to, err := logTo(places.Here(), os.Getenv)
	if err != nil {
		return err
	}
	d, err := daemon.New(cfg, logger(cfg, to))
	if err != nil {
		return err
	}
	// It listens. What it starts is not the service that systemd waits for, so the variable goes (sd_notify(3)).
	if _, err := systemd.SdNotify(true, systemd.SdNotifyReady); err != nil {
		slog.Warn("systemd was not told that kithd is ready, and will start it again", "err", err)
	}
	return d.Run(ctx)
}
