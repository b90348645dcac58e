package cli

import (
	"context"

	"github.com/spf13/cobra"

	"kith.dev/core/api/client"
)

func (p *program) kubeconfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print the kubeconfig of this machine's cluster",
		Long:    "Print the kubeconfig of this machine's cluster. It holds an administrator's key: keep it to yourself.",
		Example: "  umask 077; kith kubeconfig > ~/.kube/kith.yaml\n  KUBECONFIG=~/.kube/kith.yaml kubectl get nodes",
		Args:    between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := call(p, c, func(ctx context.Context, kithd *client.Client) ([]byte, error) { return kithd.Kubeconfig(ctx) })
			if err == nil {
				_, err = p.Out.Write(b)
			}
			return err
		},
	}
}
