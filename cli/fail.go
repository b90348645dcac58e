package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
)

// exitInterrupted is what shells expect after SIGINT.
const exitInterrupted = 130

// fail tells what went wrong and gives the exit code.
func (p *program) fail(ctx context.Context, command *cobra.Command, err error) int {
	style := p.style(p.ErrTerminal)
	if ctx.Err() != nil {
		fmt.Fprintln(p.Err, style.Red("kith:"), "interrupted; what was begun goes on")
		return exitInterrupted
	}
	var e *api.Error
	if !errors.As(err, &e) {
		e = &api.Error{Code: api.CodeInternal, Message: err.Error()}
		if !p.ran {
			e.Code, e.Do = api.CodeInvalid, fmt.Sprintf("see `%s --help`", command.CommandPath())
		}
	}
	text := e.Message
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	// Words of peers can be in here; the lines are ours.
	fmt.Fprintln(p.Err, style.Red("kith:"), indented(text))
	if e.Do != "" {
		fmt.Fprintln(p.Err, "     ", indented(e.Do))
	}
	return e.Code.ExitCode()
}

// indented cleans text, leaves blank lines out, and sets its lines after the first under the first.
func indented(text string) string {
	lines := strings.FieldsFunc(screen.CleanLines(text), func(r rune) bool { return r == '\n' })
	return strings.Join(lines, "\n      ")
}

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `kith exits with

  0    it worked
  1    it failed; the message says why
  2    the command line is wrong, or a value in it is not allowed
  3    kithd is not running, or cannot be reached
  4    you are not permitted to talk to kithd
  5    there is no peer, request, contract or namespace of that name
  6    the peer declined, or the request expired
  7    it did not end within --timeout
  8    the peer accepted, and you have to confirm before anything is signed
  130  interrupted (Ctrl-C)`,
	}
}
