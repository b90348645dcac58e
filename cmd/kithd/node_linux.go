package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"kith.dev/core/base/places"
	"kith.dev/core/local/cluster"
	"kith.dev/daemon"
	"kith.dev/daemon/config"
	"kith.dev/daemon/controllerlog"
	"kith.dev/daemon/node"
)

// nodeCommand is for the DaemonSet of the chart (packaging/chart), and nobody types it.
func nodeCommand() *cobra.Command {
	var cfg node.Config
	var pods, services, health, kubeconfig string
	c := &cobra.Command{
		Use: "node", Short: "Lead pods of this node to the gateway's, and keep guests here fenced", Args: cobra.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if cfg.Pods, err = netip.ParsePrefix(pods); err != nil {
				return fmt.Errorf("--pod-range: %w", err)
			}
			if cfg.Services, err = netip.ParsePrefix(services); err != nil {
				return fmt.Errorf("--service-range: %w", err)
			}
			if cfg.REST, err = cluster.Config(kubeconfig, ""); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			to, err := logTo(places.Here(), os.Getenv)
			if err != nil {
				return err
			}
			cfg.Log = logger(config.Default(), to)
			cfg.Controllers = controllerlog.To(cfg.Log)
			n := node.New(cfg)
			if health != "" {
				probes := &daemon.Probes{Readiness: func(context.Context) error {
					if why := n.Ready(); why != "" {
						return errors.New(why)
					}
					return nil
				}}
				if err := probes.Serve(ctx, health); err != nil {
					return err
				}
			}
			return n.Run(ctx)
		},
	}
	f := c.Flags()
	f.StringVar(&cfg.Node, "node-name", "", "this node")
	f.StringVar(&cfg.DaemonSet, "daemon-set", "", "NAMESPACE/NAME of the DaemonSet that this process is of")
	f.StringVar(&pods, "pod-range", "", "range of the addresses of all pods of the cluster")
	f.StringVar(&services, "service-range", "", "range of the addresses of its services")
	f.Uint16Var(&cfg.VXLANPort, "vxlan-port", 6451, "UDP port between nodes")
	f.Uint32Var(&cfg.VXLANID, "vxlan-id", 6450, "network identifier between nodes, of 24 bits")
	f.StringVar(&health, "health-address", "", "host:port of /livez and /readyz")
	f.StringVar(&kubeconfig, "kubeconfig", "", "file that leads to the cluster, in place of the pod's own account")
	return c
}
