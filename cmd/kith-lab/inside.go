package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kith.dev/test/lab"
)

func execCommand(open opener) *cobra.Command {
	c := &cobra.Command{
		Use:   "exec NAME -- CMD…",
		Short: "Run a command inside a laptop",
		Long: `Runs a command in all namespaces of the laptop, with Kith's binaries in PATH and the KUBECONFIG of its cluster. Input,
output, terminal and exit status are the command's own. "kubectl" is the engine's when there is no other. The name "lan"
is the LAN itself, the place to watch packets.`,
		Example: `  kith-lab exec alice -- bash
  kith-lab exec alice -- kubectl get pods -A
  kith-lab exec bob -- kith peers
  kith-lab exec lan -- tcpdump -ni br0 port 5353`,
		Args: cobra.MinimumNArgs(1),
		RunE: open.lab(func(c *cobra.Command, args []string, l *lab.Lab) error {
			p, argv := l.Laptop(args[0]), args[1:]
			if len(argv) > 0 && argv[0] == "--" {
				argv = argv[1:]
			}
			if len(argv) == 0 {
				return fmt.Errorf("say what to run: kith-lab exec %s -- COMMAND", args[0])
			}
			if argv[0] == "kubectl" {
				argv = append(p.KubectlCommand(), argv[1:]...)
			}
			dir, _ := os.Getwd()
			ctx, forward := forwarding(c.Context())
			defer forward()
			return p.Run(ctx, lab.Command{
				Args: argv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Dir: dir,
				Terminal: term.IsTerminal(int(os.Stdin.Fd())),
			})
		}),
	}
	c.Flags().SetInterspersed(false)
	return c
}

// forwarding leaves Ctrl-C to the command, which the terminal sends it to as well; the command ends, and then we do.
func forwarding(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	interrupts := make(chan os.Signal, 4)
	signal.Notify(interrupts, os.Interrupt)
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case <-ends:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(interrupts); signal.Stop(ends); cancel() }
}

func logsCommand(open opener) *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "logs NAME [" + strings.Join(lab.LogNames, "|") + "]",
		Short: "Show a laptop's log; kithd's unless told otherwise",
		Example: `  kith-lab logs alice -f
  kith-lab logs bob k8s`,
		Args:      cobra.RangeArgs(1, 2),
		ValidArgs: lab.LogNames,
		RunE: open.lab(func(c *cobra.Command, args []string, l *lab.Lab) error {
			name := "kithd"
			if len(args) == 2 {
				name = args[1]
			}
			return l.Laptop(args[0]).Logs(c.Context(), c.OutOrStdout(), name, follow)
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until interrupted")
	return c
}

func lsCommand(open opener) *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List the laptops: state, address, PID, up since, link",
		Example: "  kith-lab ls\n  kith-lab ls -o json",
		Args:    cobra.NoArgs,
		RunE: open.lab(func(c *cobra.Command, _ []string, l *lab.Lab) error {
			if format != "" && format != "json" {
				return fmt.Errorf("-o %q: there is only json", format)
			}
			all := []lab.Info{}
			for _, p := range l.Laptops() {
				i, err := p.Info()
				if err != nil {
					return err
				}
				all = append(all, i)
			}
			if format == "json" {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(all)
			}
			return table(c.OutOrStdout(), all)
		}),
	}
	c.Flags().StringVarP(&format, "output", "o", "", "json for programs")
	return c
}

func table(w io.Writer, all []lab.Info) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tPOWER\tADDRESS\tPID\tUP SINCE\tKITHD\tLINK")
	for _, i := range all {
		pid, since, daemon := "-", "-", "-"
		if i.PID != 0 {
			pid, since, daemon = fmt.Sprint(i.PID), i.Up.Local().Format(time.DateTime), string(i.Daemon)
			if i.Restarts > 0 {
				daemon = fmt.Sprintf("%s (%d restarts)", daemon, i.Restarts)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i.Name, i.Power, i.Address, pid, since, daemon, linkText(i))
	}
	return t.Flush()
}

func linkText(i lab.Info) string {
	var s []string
	if len(i.Cut) > 0 {
		s = append(s, "cut from "+strings.Join(i.Cut, ", "))
	}
	if i.Link.Rate > 0 {
		s = append(s, formatRate(i.Link.Rate))
	}
	if i.Link.Delay > 0 {
		s = append(s, "delay "+i.Link.Delay.String())
	}
	if i.Link.Loss > 0 {
		s = append(s, fmt.Sprintf("loss %g%%", i.Link.Loss*100))
	}
	if i.Link.MTU > 0 {
		s = append(s, fmt.Sprintf("mtu %d", i.Link.MTU))
	}
	if len(s) == 0 {
		return "good"
	}
	return strings.Join(s, "; ")
}
