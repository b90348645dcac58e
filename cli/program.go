// Package cli is kith, the command line: it asks kithd through core/api/client and shows the answers to people (tables,
// colours and progress on a terminal) and to scripts (-o json, exit codes).
//
// cmd/kith runs it. One file per noun; each command is a cobra.Command made from the program, which holds what the
// process has (arguments, streams, clock) so that tests need no process. It must never decide anything that the
// daemon could, import Kubernetes code, or print a peer's words without clean.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
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

// program is one run of kith.
type program struct {
	Env
	socket string
	format string
	ran    bool // a command was found and its arguments were fine: errors are no usage errors
}

// Run runs kith and gives its exit code. When ctx ends it stops waiting, not what was begun.
func Run(ctx context.Context, env Env) int {
	p := &program{Env: env}
	root := p.root()
	root.SetArgs(env.Args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return api.ExitOK
	}
	return p.fail(ctx, command, err)
}

// Command gives the tree of commands, for manual pages and documentation.
func Command() *cobra.Command {
	p := &program{Env: Env{Getenv: func(string) string { return "" }, Now: time.Now}}
	return p.root()
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kith",
		Short: "Turn the laptops around you into one Kubernetes",
		Long: `kith asks the daemon of this machine, kithd, about the clusters around you.

Find a peer, ask it for resources, let pods of a namespace run there:

  kith peers
  kith peer bob
  kith offload shop

Offer what your machine has to spare, and answer those who ask:

  kith share 50%
  kith requests
  kith accept alice

Let a company's cluster decide what this machine runs, and take it back:

  kith tether corp
  kith untether

Root and the members of the group kith may use it. The group is root's equal: who may say what runs in this cluster, and
hold its administrator's key, can become root on this machine.`,
		Version:       p.Version, // --version, without kithd
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("kith {{.Version}}\n")
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	root.PersistentFlags().StringVar(&p.socket, "socket", "", "unix socket of kithd (default $KITH_SOCKET, else "+client.DefaultSocket+")")
	root.AddGroup(&cobra.Group{ID: "look", Title: "See what is:"}, &cobra.Group{ID: "consume", Title: "Use other clusters:"},
		&cobra.Group{ID: "provide", Title: "Let others use this one:"}, &cobra.Group{ID: "mode", Title: "Let a company's cluster decide:"})
	group(root, "look", p.statusCommand(), p.peersCommand(), p.contractCommand(), p.eventsCommand(), p.whyCommand(), p.topCommand(), p.doctorCommand(), p.bugReportCommand())
	group(root, "mode", p.tetherCommand(), p.untetherCommand())
	group(root, "consume", p.peerCommand(), p.confirmCommand(), p.unpeerCommand(), p.forgetCommand(), p.offloadCommand(), p.unoffloadCommand(), p.runCommand())
	group(root, "provide", p.shareCommand(), p.undoCommand(), p.requestsCommand(), p.acceptCommand(), p.declineCommand(), p.guestsCommand(), p.dnsRecordsCommand())
	root.AddCommand(p.imageCommand(), p.kubectlCommand(), p.shellCommand(), p.kubeconfigCommand(), p.docsCommand(), p.uninstallCommand(), p.versionCommand(), exitCodesTopic())
	for _, c := range root.Commands() {
		p.prepare(c)
	}
	return root
}

func group(root *cobra.Command, id string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = id
	}
	root.AddCommand(commands...)
}

// prepare notes when a command itself begins, and lets nobody else's errors look like its own.
func (p *program) prepare(c *cobra.Command) {
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

// kithd makes a client for the socket that was named. Close it.
func (p *program) kithd() *client.Client {
	return client.New(cmp.Or(p.socket, p.Getenv("KITH_SOCKET"), client.DefaultSocket))
}

// between allows a command from least to most arguments (-1: any number).
func between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		wanted := screen.Count(least, "argument")
		if most != least {
			wanted = fmt.Sprintf("%d to %s", least, screen.Count(most, "argument"))
		}
		if n := len(args); n < least || most >= 0 && n > most {
			return fmt.Errorf("`%s` takes %s, not %d", strings.TrimSuffix(c.UseLine(), " [flags]"), wanted, n)
		}
		return nil
	}
}

// callTimeout bounds calls that kithd answers at once; kithd's own bound is shorter and says more.
const callTimeout = 40 * time.Second

// call makes a call that kithd answers at once.
func call[T any](p *program, c *cobra.Command, f func(*client.Client, context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(c.Context(), callTimeout)
	defer cancel()
	kithd := p.kithd()
	defer kithd.Close()
	defer p.progress("waiting for kithd").stop()
	return f(kithd, ctx)
}

// callAbout is call for what takes one argument.
func callAbout[A, T any](p *program, c *cobra.Command, f func(*client.Client, context.Context, A) (T, error), about A) (T, error) {
	return call(p, c, func(kithd *client.Client, ctx context.Context) (T, error) { return f(kithd, ctx, about) })
}

// long makes a call that may take as long as timeout (0: any time) and shows its progress.
func long[T any](p *program, c *cobra.Command, timeout time.Duration, f func(context.Context, *client.Client, *progress) (T, error)) (T, error) {
	ctx := c.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	kithd := p.kithd()
	defer kithd.Close()
	progress := p.progress("waiting for kithd")
	defer progress.stop()
	return f(ctx, kithd, progress)
}

func timeoutFlag(c *cobra.Command, to *time.Duration, usage string) {
	c.Flags().DurationVar(to, "timeout", 0, usage+", for example 90s; 0 waits as long as it takes")
}

// versions is what kith version says.
type versions struct {
	Kith  api.Version  `json:"kith"`
	Kithd *api.Version `json:"kithd,omitempty"` // left out when it is not asked, or does not answer
}

func (p *program) versionCommand() *cobra.Command {
	var own bool
	c := p.things(&cobra.Command{
		Use:     "version",
		Short:   "Show the versions of kith and of kithd",
		Example: "  kith version\n  kith version --client",
		Args:    between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			v := versions{Kith: api.Version{Version: p.Version, Commit: p.Commit, Go: runtime.Version()}}
			var failed error
			absent := false
			if !own {
				var kithd api.Version
				kithd, failed = call(p, c, (*client.Client).Version)
				if failed == nil {
					v.Kithd = &kithd
				} else if absent = errors.Is(failed, &api.Error{Code: api.CodeUnavailable}); absent {
					failed = nil // what is asked is which versions are there
				}
			}
			if done, err := p.machine(v); done && err != nil {
				return err
			} else if !done {
				p.showVersion("kith", v.Kith)
				if v.Kithd != nil {
					p.showVersion("kithd", *v.Kithd)
				} else if absent {
					fmt.Fprintln(p.Out, "kithd  is not running")
				}
			}
			return failed
		},
	})
	c.Flags().BoolVar(&own, "client", false, "do not ask kithd")
	return c
}

func (p *program) showVersion(program string, v api.Version) {
	text := screen.Clean(v.Version)
	if v.Commit != "" {
		text += ", commit " + screen.Clean(v.Commit)
	}
	if v.Kubernetes != "" {
		text += ", Kubernetes " + screen.Clean(v.Kubernetes)
	}
	fmt.Fprintf(p.Out, "%-5s  %s\n", program, text)
}
