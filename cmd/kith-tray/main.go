// Go looks each second whether a container's share of processors has changed, and each look wakes the laptop. It is read once.
//
//go:debug updatemaxprocs=0

// Command kith-tray is Kith in the panel of the desktop: see package kith.dev/tray.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"kith.dev/core/api"
	"kith.dev/core/base/version"
	"kith.dev/tray"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second signal ends the process
	if err := tray.Command(os.Getenv, version.Version).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kith-tray:", err)
		var e *api.Error
		if errors.As(err, &e) {
			os.Exit(e.Code.ExitCode())
		}
		os.Exit(api.ExitFailure)
	}
}
