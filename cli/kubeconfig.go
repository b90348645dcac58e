package cli

import (
	"fmt"
	"os/exec"

	"github.com/spf13/cobra"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/core/local/kubeconfig"
)

func (p *program) kubeconfigCommand() *cobra.Command {
	var direct, merge, use bool
	var name string
	c := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig of your own for this machine's Kubernetes, or merge it into yours",
		Long: `Print a kubeconfig of your own for this machine's Kubernetes. It leads to the front door at
127.0.0.1:6451, which passes everything on to this laptop's cluster, and holds a certificate
of yours, good for a year as long as you are in the group kith. Who has it is the cluster's
administrator: keep it to yourself. Each call prints another one, and none is kept.

With --merge it is printed nowhere: the context kith is put into your own kubeconfig ($KUBECONFIG, else
~/.kube/config), where kubectl finds it. Other contexts, what is current, comments and unknown fields
stay as they are; a context kith that is not Kith's is left alone, and so is a file that kith does not
understand. The file as it was is kept beside it, as config.before-kith. Call it again for a new certificate.`,
		Example: "  kith kubeconfig --merge && kubectl --context kith get nodes\n  umask 077; kith kubeconfig > ~/.kube/kith.yaml\n  KUBECONFIG=~/.kube/kith.yaml kubectl get nodes",
		Args:    between(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if !merge && (use || c.Flags().Changed("context")) {
				return &api.Error{Code: api.CodeInvalid, Message: "--use and --context say how to merge: they need --merge", Do: "see `kith kubeconfig --help`"}
			}
			ask := (*client.Client).Kubeconfig
			if direct {
				ask = (*client.Client).DirectKubeconfig
			}
			b, err := call(p, c, ask)
			if err == nil && merge {
				return p.merge(kubeconfig.Ask{Files: kubeconfig.Files(p.Getenv), Access: b, Context: name, Use: use})
			}
			if err == nil {
				_, err = p.Out.Write(b)
			}
			return err
		},
	}
	c.Flags().BoolVar(&direct, "direct", false, "print the administrator's, which leads to this machine's cluster itself, past the front door")
	c.Flags().BoolVar(&merge, "merge", false, "put it into your own kubeconfig as the context kith")
	c.Flags().BoolVar(&use, "use", false, "with --merge: make it the current context")
	c.Flags().StringVar(&name, "context", kubeconfig.Name, "with --merge: the name of the context")
	c.MarkFlagsMutuallyExclusive("direct", "merge")
	return c
}

// merge puts a context into the user's kubeconfig, and says where and what was there.
func (p *program) merge(ask kubeconfig.Ask) error {
	plan, err := kubeconfig.Make(ask)
	if err != nil {
		return &api.Error{Code: api.CodeConflict, Message: err.Error()}
	}
	backup, err := plan.Write()
	if err != nil {
		return &api.Error{Code: api.CodeInternal, Message: err.Error()}
	}
	fmt.Fprintf(p.Out, "the context %s is in %s%s\n", plan.Context, plan.Path, map[bool]string{true: ", and is the current one"}[plan.Uses || plan.Current == plan.Context])
	if backup != "" {
		fmt.Fprintf(p.Out, "the file as it was: %s\n", backup)
	}
	_, none := exec.LookPath("kubectl")
	switch {
	case none != nil:
		fmt.Fprintln(p.Out, "kith-k8s kubectl get nodes")
	case plan.Uses || plan.Current == plan.Context:
		fmt.Fprintln(p.Out, "kubectl get nodes")
	default:
		fmt.Fprintf(p.Out, "kubectl --context %s get nodes\n", plan.Context)
	}
	return nil
}
