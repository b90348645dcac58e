// Package cli is kith, the command line: it asks kithd through core/api/client and shows the answers to people (tables,
// colours and progress on a terminal) and to scripts (-o json, exit codes).
//
// cmd/kith runs it. One file per noun, or for some that go together; each command is a cobra.Command made with what package
// program has for all of them, so that tests need no process. It must never decide anything that the daemon could, import
// Kubernetes code, or print a peer's words without clean.
package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/cli/program"
	"kith.dev/cli/screen"
	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// commands are the commands of one run of kith.
type commands struct{ *program.Program }

// Run runs kith and gives its exit code. When ctx ends it stops waiting, not what was begun.
func Run(ctx context.Context, env program.Env) int {
	p := commands{&program.Program{Env: env}}
	return p.Run(ctx, p.root())
}

// Command gives the tree of commands, for manual pages and documentation.
func Command() *cobra.Command {
	return commands{&program.Program{Env: program.Env{Getenv: func(string) string { return "" }, Now: time.Now}}}.root()
}

func (p commands) root() *cobra.Command {
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
	root.PersistentFlags().StringVar(&p.Socket, "socket", "", "unix socket of kithd (default $KITH_SOCKET, else "+client.DefaultSocket+")")
	root.AddGroup(&cobra.Group{ID: "look", Title: "See what is:"}, &cobra.Group{ID: "consume", Title: "Use other clusters:"},
		&cobra.Group{ID: "provide", Title: "Let others use this one:"}, &cobra.Group{ID: "mode", Title: "Let a company's cluster decide:"})
	group(root, "look", p.statusCommand(), p.webCommand(), p.peersCommand(), p.catalogueCommand(), p.contractCommand(), p.eventsCommand(), p.whyCommand(), p.topCommand(), p.usageCommand(), p.receiptCommand(), p.doctorCommand(), p.bugReportCommand())
	group(root, "mode", p.tetherCommand(), p.untetherCommand())
	group(root, "consume", p.peerCommand(), p.confirmCommand(), p.unpeerCommand(), p.forgetCommand(), p.offloadCommand(), p.unoffloadCommand(), p.volumesCommand(), p.volumeCommand(), p.runCommand(), p.wakeCommand())
	group(root, "provide", p.shareCommand(), p.undoCommand(), p.requestsCommand(), p.acceptCommand(), p.declineCommand(), p.guestsCommand(), p.awakeCommand(), p.dnsRecordsCommand())
	root.AddCommand(p.imageCommand(), p.kubectlCommand(), p.shellCommand(), p.kubeconfigCommand(), p.docsCommand(), p.uninstallCommand(), p.versionCommand(), exitCodesTopic())
	return root
}

func group(root *cobra.Command, id string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = id
	}
	root.AddCommand(commands...)
}

// versions is what kith version says.
type versions struct {
	Kith  api.Version  `json:"kith"`
	Kithd *api.Version `json:"kithd,omitempty"` // left out when it is not asked, or does not answer
}

func (p commands) versionCommand() *cobra.Command {
	var own bool
	c := p.Things(&cobra.Command{
		Use:     "version",
		Short:   "Show the versions of kith and of kithd",
		Example: "  kith version\n  kith version --client",
		Args:    program.Between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			v := versions{Kith: api.Version{Version: p.Version, Commit: p.Commit, Go: runtime.Version()}}
			var failed error
			absent := false
			if !own {
				var kithd api.Version
				kithd, failed = program.Call(p.Program, c, (*client.Client).Version)
				if failed == nil {
					v.Kithd = &kithd
				} else if absent = errors.Is(failed, &api.Error{Code: api.CodeUnavailable}); absent {
					failed = nil // what is asked is which versions are there
				}
			}
			if done, err := p.Machine(v); done && err != nil {
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

func (p commands) showVersion(of string, v api.Version) {
	text := screen.Clean(v.Version)
	if v.Commit != "" {
		text += ", commit " + screen.Clean(v.Commit)
	}
	if v.Kubernetes != "" {
		text += ", Kubernetes " + screen.Clean(v.Kubernetes)
	}
	fmt.Fprintf(p.Out, "%-5s  %s\n", of, text)
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
