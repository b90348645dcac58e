package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

func (p commands) uninstallCommand() *cobra.Command {
	var fromCluster, sure bool
	c := &cobra.Command{
		Use:   "uninstall --from-cluster",
		Short: "Take Kith out of a cluster that somebody else runs",
		Long: `Take Kith out of the cluster that this machine's kithd is attached to, by a kubeconfig or as the K3s that is a service here.

Contracts end and peers are told: pods that run at peers come home, guests here end. Then kithd is stopped and not started at
boot any more, and all that it made in the cluster goes: nodes of peers, namespaces of guests, admission policies, roles, and
Kith's own kinds with all objects of them, policies among them. Nothing else is touched.

It needs root, and what the kubeconfig in kithd's configuration allows. What failed is said, and the rest done; it may be
repeated. A kithd that systemd did not start is not stopped by this: end it when you are told to, and repeat. One that runs as a
pod of the cluster goes by helm uninstall, the program by its package.`,
		Example: "  sudo kith uninstall --from-cluster",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !fromCluster {
				return &api.Error{Code: api.CodeInvalid, Message: "from where?", Field: "from-cluster",
					Do: "--from-cluster takes Kith out of the cluster that kithd is attached to; the program goes with its package: apt remove kith"}
			}
			if !sure && p.Asks() {
				if err := p.Sure(c.Context(), "All peerings end, kithd stops, and what it made in the cluster goes, your SharingPolicies among it. Go on?"); err != nil {
					return err
				}
			}
			return p.uninstall(c.Context())
		},
	}
	c.Flags().BoolVar(&fromCluster, "from-cluster", false, "take it out of the cluster that this machine's kithd is attached to")
	c.Flags().BoolVarP(&sure, "yes", "y", false, "do not ask")
	return c
}

// uninstall has the program of kithd do it, which knows how to talk to a cluster. It says itself what it does, and what failed.
func (p commands) uninstall(ctx context.Context) error {
	path := p.Kithd
	if path == "" {
		var missing *api.Error
		if path, missing = client.Program(); missing != nil {
			return missing
		}
	}
	cmd := exec.CommandContext(ctx, path, "uninstall")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = p.Out, p.Err, time.Second
	err := cmd.Run()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		return &api.Error{Code: api.CodeConflict, Message: "Kith is not wholly gone from the cluster", Reason: "see above", Do: "mend that, and say this once more"}
	} else if err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	fmt.Fprintln(p.Out, "Kith is gone from the cluster, and kithd does not start any more: `sudo systemctl enable --now kithd` attaches it again")
	return nil
}
