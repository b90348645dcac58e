// Go looks each second whether a container's share of processors has changed, and each look wakes the laptop. It is read once.
//
//go:debug updatemaxprocs=0

// Command kithd is the daemon: see package kith.dev/daemon.
package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"kith.dev/core/base/layout"
	"kith.dev/core/base/places"
	"kith.dev/core/base/sysmon"
	"kith.dev/core/base/version"
	"kith.dev/daemon"
	"kith.dev/daemon/alone"
	"kith.dev/daemon/config"
	"kith.dev/daemon/leader"
)

// monitorSlack is how much later than it wants Go's monitor thread may look: a few looks' worth, and too short for a goroutine to be missed.
const monitorSlack = 500 * time.Microsecond

// exitConfig is EX_CONFIG of sysexits.h: what kithd was told is not understood, or what is stored is a newer Kith's, and starting it
// again helps nothing. The systemd unit knows the number.
const exitConfig = 78

func main() {
	understood, asked := false, false // asked: whether it may start, and no more
	kithd := config.Command(version.Version, config.Actions{
		Run: func(ctx context.Context, cfg config.Config) error {
			understood = true
			return run(ctx, cfg)
		},
		Check: func(dir string) error {
			understood, asked = true, true
			return layout.CheckAll(dir, daemon.Stores())
		},
		Doctor: func(ctx context.Context, load func() (config.Config, error), out io.Writer) error {
			understood = true
			return alone.Doctor(ctx, load, out)
		},
		BugReport: func(ctx context.Context, load func() (config.Config, error), why string, out io.Writer) error {
			understood = true
			return alone.BugReport(ctx, load, why, out)
		},
	})
	kithd.AddCommand(nodeCommand(), uninstallCommand())
	if err := kithd.ExecuteContext(context.Background()); err != nil {
		complain(err)
		var refused *layout.Refusal
		if !understood && !errors.Is(err, fs.ErrPermission) || errors.As(err, &refused) && !asked {
			os.Exit(exitConfig)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config.Config) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	to, err := logTo(places.Here(), os.Getenv)
	if err != nil {
		return err
	}
	log := logger(cfg, to)
	if err := sysmon.Slacken(monitorSlack); err != nil {
		log.Debug("kithd wakes up more often than it needs", "err", err)
	}
	probes := new(daemon.Probes)
	if cfg.HealthAddress != "" {
		if err := probes.Serve(ctx, cfg.HealthAddress); err != nil {
			return err
		}
	}
	return daemon.Lead(ctx, cfg, log, func(ctx context.Context, term *leader.Term) error { return work(ctx, cfg, log, probes, term) })
}

// work is a kithd that stands by for no other.
func work(ctx context.Context, cfg config.Config, log *slog.Logger, probes *daemon.Probes, term *leader.Term) error {
	d, err := daemon.New(cfg, log)
	if err != nil {
		return err
	}
	d.During(term)
	probes.Of(d)
	defer probes.Of(nil)
	// It listens. What it starts is not the service that systemd waits for, so the variable goes (sd_notify(3)).
	tell := systemdSocket()
	if err := tell(systemd.SdNotifyReady); err != nil {
		slog.Warn("systemd was not told that kithd is ready, and will start it again", "err", err)
	}
	if patience, err := systemd.SdWatchdogEnabled(true); err == nil && patience > 0 {
		go d.Watchdog(ctx, patience, func() error { return tell(systemd.SdNotifyWatchdog) })
	}
	return d.Run(ctx)
}

// systemdSocket takes the variable with systemd's socket out of the environment, and gives what sends a notice there (sd_notify(3)).
// Without one, notices go nowhere.
func systemdSocket() func(notice string) error {
	const name = "NOTIFY_SOCKET"
	socket := os.Getenv(name)
	_ = os.Unsetenv(name)
	return func(notice string) error {
		if socket == "" {
			return nil
		}
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte(notice))
		return err
	}
}
