// Command kith-lab makes a LAN of laptops on one Linux machine, to play with Kith and to test it: a thin command line over
// kith.dev/test/lab, where everything is done. As `kith-lab init`, which only it starts, it is also the first process of
// each laptop (kith.dev/test/lab/pid1).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"kith.dev/core/base/version"
	"kith.dev/test/lab"
	"kith.dev/test/lab/pid1"
)

// The first process of a laptop executes itself a second time, from the thread that entered the new namespaces. That must
// be the main thread: while any other takes over the process, the kernel shows no namespaces for it, and whoever plugs
// in the network just then finds none.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "init" {
		runtime.LockOSThread()
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		// Of exec: its command has said what was wrong.
		os.Exit(exitCode(exit))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kith-lab:", err)
		os.Exit(1)
	}
}

// exitCode is the shell's: 128 plus the signal's number for a command that was killed.
func exitCode(e *exec.ExitError) int {
	if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return e.ExitCode()
}

func root() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "kith-lab",
		Short: "A LAN of laptops on one machine, each running the real Kith",
		Long: `kith-lab makes laptops out of namespaces: alice, bob, carol and more, on a LAN of their own, each with its
own disk, running the real kithd, its Kubernetes and real containers. Links can be cut and slowed, laptops frozen,
killed, booted and moved. It needs root, leaves the machine's own network alone, and "down" leaves nothing behind.`,
		Example: `  kith-lab up 3                        # alice, bob and carol
  kith-lab exec alice -- kith status
  kith-lab exec alice -- kubectl get nodes
  kith-lab cut alice bob
  kith-lab down`,
		Version:      version.Version,
		SilenceUsage: true, SilenceErrors: true,
	}
	c.PersistentFlags().StringVar(&name, "lab", envOr("KITH_LAB", lab.DefaultName), "name of the lab; several can exist side by side ($KITH_LAB)")
	open := func() (*lab.Lab, error) { return lab.Open(name) }
	c.AddCommand(
		upCommand(&name), downCommand(&name), lsCommand(open),
		execCommand(open), logsCommand(open), imageCommand(open),
		cutCommand(open), healCommand(open), slowCommand(open), mtuCommand(open), moveCommand(open),
		freezeCommand(open), thawCommand(open), killCommand(open), bootCommand(open), daemonCommand(open),
		initCommand(),
	)
	return c
}

// opener is a handle to the lab that --lab names.
type opener func() (*lab.Lab, error)

// lab runs a command with the lab open.
func (open opener) lab(run func(c *cobra.Command, args []string, l *lab.Lab) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		l, err := open()
		if err != nil {
			return err
		}
		return run(c, args, l)
	}
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func initCommand() *cobra.Command {
	var second bool
	c := &cobra.Command{
		Use: "init SPEC", Hidden: true, Args: cobra.ExactArgs(1),
		Short: "Be the first process of a laptop (started by kith-lab only)",
		RunE:  func(_ *cobra.Command, args []string) error { return pid1.Run(args[0], second) },
	}
	c.Flags().BoolVar(&second, "second", false, "go on after entering the cgroups")
	return c
}
