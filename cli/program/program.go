// Package program is what all commands of kith share: what the process has, the way to kithd, the forms of output, lists,
// progress, completion, questions at the terminal, flags and arguments that several commands take, and how an error ends.
// Package cli, which has the commands, calls it.
//
// It must never know a single command, decide anything that the daemon could, import Kubernetes code, or print a peer's
// words without clean.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// Env is what the process has.
type Env struct {
	Args   []string // without the program's name
	In     io.Reader
	Out    io.Writer
	Err    io.Writer
	Getenv func(string) string
	Now    func() time.Time

	// Whether the stream is a terminal.
	InTerminal, OutTerminal, ErrTerminal bool

	Version, Commit string // of kith

	Kithd string // the program of kithd, which is run where none answers; "": the one that is installed beside this kith
}

// Program is one run of kith.
type Program struct {
	Env
	Socket string // of kithd, when it was named
	Format string // of the output, when it was named; "": the one for people
	ran    bool   // a command was found and its arguments were fine: errors are no usage errors
}

// Run runs the command under root that the arguments name, and gives kith's exit code.
func (p *Program) Run(ctx context.Context, root *cobra.Command) int {
	root.SetArgs(p.Args)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	p.prepare(root)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return api.ExitOK
	}
	return p.fail(ctx, command, err)
}

// prepare notes when a command itself begins, and lets nobody else's errors look like its own.
func (p *Program) prepare(c *cobra.Command) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			if err := checkArgs(args); err != nil && !c.DisableFlagParsing {
				return err
			}
			p.ran = true
			return run(c, args)
		}
	}
	for _, sub := range c.Commands() {
		p.prepare(sub)
	}
}

// checkArgs refuses what cannot be the name of anything, before it becomes a part of a path.
func checkArgs(args []string) error {
	for _, a := range args {
		if a == "" || a == "." || a == ".." {
			return api.Invalid("argument", a, "a name")
		}
	}
	return nil
}

// Client makes a client for the socket that was named. Close it.
func (p *Program) Client() *client.Client {
	return client.New(cmp.Or(p.Socket, p.Getenv("KITH_SOCKET"), client.DefaultSocket))
}

// callTimeout bounds calls that kithd answers at once; kithd's own bound is shorter and says more.
const callTimeout = 40 * time.Second

// Call makes a call that kithd answers at once.
func Call[T any](p *Program, c *cobra.Command, f func(*client.Client, context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(c.Context(), callTimeout)
	defer cancel()
	kithd := p.Client()
	defer kithd.Close()
	defer p.Progress("waiting for kithd").Stop()
	return f(kithd, ctx)
}

// CallAbout is Call for what takes one argument.
func CallAbout[A, T any](p *Program, c *cobra.Command, f func(*client.Client, context.Context, A) (T, error), about A) (T, error) {
	return Call(p, c, func(kithd *client.Client, ctx context.Context) (T, error) { return f(kithd, ctx, about) })
}

// Long makes a call that may take as long as timeout (0: any time) and shows its progress.
func Long[T any](p *Program, c *cobra.Command, timeout time.Duration, f func(context.Context, *client.Client, *Progress) (T, error)) (T, error) {
	ctx := c.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	kithd := p.Client()
	defer kithd.Close()
	progress := p.Progress("waiting for kithd")
	defer progress.Stop()
	return f(ctx, kithd, progress)
}

// Exit is the exit code, other than 0, of a program that was run and has said why itself.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitInterrupted is what shells expect after SIGINT.
const exitInterrupted = 130

// fail tells what went wrong and gives the exit code.
func (p *Program) fail(ctx context.Context, command *cobra.Command, err error) int {
	if exit, is := errors.AsType[Exit](err); is {
		return int(exit)
	}
	style := p.Style(p.ErrTerminal)
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
