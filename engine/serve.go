package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as upstream's binaries have them
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"

	"kith.dev/core/base/memory"
	"kith.dev/engine/config"
	"kith.dev/engine/listener"
	"kith.dev/engine/logs"
	"kith.dev/engine/processors"
	"kith.dev/engine/server"
)

// gcPercent trades some CPU for a third of the heap; the process idles at 3 % of a core.
const gcPercent = 45

func serverCommand() *cobra.Command {
	c := config.Default()
	var file string
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the cluster until told to stop; pods outlive it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := config.Load(file, cmd.Flags()); err != nil {
					return err
				}
			}
			if err := complete(&c); err != nil {
				return err
			}
			return runServer(&c)
		},
	}
	c.Flags(cmd.Flags())
	cmd.Flags().StringVar(&file, "config", "", "YAML file with these flags as keys; flags given here win")
	return cmd
}

func runServer(c *config.Config) error {
	if err := listener.Inherit(); err != nil {
		return err
	}
	return serve(c, func(ctx context.Context, log *slog.Logger) error { return server.Run(ctx, c, stores(), log) })
}

// complete fills c with what follows from this program's place and the machine's name.
func complete(c *config.Config) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return err
	}
	return c.Complete(program, hostname)
}

// serve runs a server or an agent until this process is told to stop.
func serve(c *config.Config, run func(context.Context, *slog.Logger) error) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// Ours is not the service systemd waits for: the kubelet would report readiness in kithd's name.
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	all := lead(c)
	log := all.Own
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, all.Stopping)()
	log.Info("starting", "version", version, "kubernetes", kubernetesVersion(), "node", c.NodeName)
	go func() { _ = memory.Tidy(ctx, memory.Engine) }() // it ends with ctx alone
	go processors.Follow(ctx)
	err := run(ctx, log)
	if err == nil {
		log.Info("stopped; pods run on")
	}
	return err
}

// lead leads the logs of all components into one.
func lead(c *config.Config) *logs.Logs {
	l := logs.New(os.Stderr, c.Level())
	logrus.SetOutput(os.Stderr)
	logrus.SetLevel(logrus.WarnLevel) // kine
	if c.Level() <= slog.LevelDebug {
		logrus.SetLevel(logrus.InfoLevel)
		var v klog.Level
		_ = v.Set("2")
	}
	slog.SetDefault(l.Parts) // CoreDNS writes to the standard logger, which this redirects
	klog.SetSlogLogger(l.Parts)
	return l
}
