// Command kith-tray is Kith in the panel of the desktop: see package kith.dev/tray.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"kith.dev/core/api"
	"kith.dev/core/version"
	"kith.dev/tray"
	"kith.dev/tray/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	cmd := command.New(os.Getenv, version.Version, run)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kith-tray:", err)
		var e *api.Error
		if errors.As(err, &e) {
			os.Exit(e.Code.ExitCode())
		}
		os.Exit(api.ExitFailure)
	}
}

func run(ctx context.Context, o command.Options) error {
	if o.Once {
		text, err := tray.Once(ctx, o.Socket)
		fmt.Print(text)
		return err
	}
	level := slog.LevelInfo
	if o.Verbose {
		level = slog.LevelDebug
	}
	return tray.Start(ctx, o.Socket, version.Version, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
}
