// Command kith is the command line of Kith. All of it is in package cli; this gives it the process it runs in.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"kith.dev/cli"
	"kith.dev/cli/program"
	"kith.dev/core/base/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the waiting in an orderly way, the second one ends the process.
	context.AfterFunc(ctx, stop)
	code := cli.Run(ctx, program.Env{
		Args:   os.Args[1:],
		In:     os.Stdin,
		Out:    os.Stdout,
		Err:    os.Stderr,
		Getenv: os.Getenv,
		Now:    time.Now,

		InTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),

		Version: version.Version,
		Commit:  version.Commit,
	})
	os.Exit(code)
}
