package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"kith.dev/core/base/places"
	"kith.dev/daemon/config"
	"kith.dev/daemon/logfile"
)

func logger(cfg config.Config, to io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == config.LogJSON {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}

// logTo is where the log goes: to the standard error output, which systemd and terminals keep. launchd throws that away, and a file that
// it was told of could not be below the user's home, which its own files have no word for.
func logTo(at places.Places, getenv func(string) string) (io.Writer, error) {
	if at.Log == "" || getenv("XPC_SERVICE_NAME") != places.Label { // launchd.plist(5) has Label; launchd sets the variable to it
		return os.Stderr, nil
	}
	f, err := logfile.Open(at.Log, logfile.Full)
	if err != nil {
		return nil, err
	}
	// What Go itself says of a crash goes there as well.
	if file, err := os.OpenFile(at.Log, os.O_APPEND|os.O_WRONLY, 0); err == nil {
		if err := debug.SetCrashOutput(file, debug.CrashOptions{}); err != nil {
			fmt.Fprintln(f, "crashes will not be in this log:", err)
		}
		file.Close() // it was duplicated
	}
	return f, nil
}

// complain says why kithd ends, where its owner looks.
func complain(err error) {
	fmt.Fprintln(os.Stderr, "kithd:", err)
	if to, failed := logTo(places.Here(), os.Getenv); failed == nil && to != os.Stderr {
		fmt.Fprintln(to, "kithd:", err)
	}
}
