// Command kith is the command line of Kith. All of it is in package cli; this gives it the process it runs in.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/term"

	"kith.dev/cli"
)

// Set by the build: -ldflags "-X main.version=1.2.3 -X main.commit=abc".
var version, commit = "development", ""

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the waiting in an orderly way, the second one ends the process.
	context.AfterFunc(ctx, stop)
	code := cli.Run(ctx, cli.Env{
		Args:   os.Args[1:],
		In:     os.Stdin,
		Out:    os.Stdout,
		Err:    os.Stderr,
		Getenv: os.Getenv,
		Now:    time.Now,

		InTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),

		Version: version,
		Commit:  commitOf(),
	})
	os.Exit(code)
}

// commitOf is the build's word, or else what the Go tool noted about the working tree.
func commitOf() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
