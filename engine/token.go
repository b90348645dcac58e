package main

import (
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"kith.dev/engine/config"
	"kith.dev/engine/join"
)

func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and delete tokens with which nodes join, on the server",
		Args:  cobra.NoArgs,
	}
	kubeconfig := cmd.PersistentFlags().String("kubeconfig", "", "the administrator's kubeconfig (default $KUBECONFIG, or the server's)")
	client := func() (kubernetes.Interface, error) { return administrator(*kubeconfig) }
	cmd.AddCommand(tokenCreate(client), tokenList(client), &cobra.Command{
		Use:     "delete ID…",
		Short:   "Take tokens back; nodes that joined by them stay",
		Example: "  kith-k8s token delete abcdef",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := client()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := join.DeleteToken(cmd.Context(), c, name); err != nil {
					return err
				}
			}
			return nil
		},
	})
	return cmd
}

func tokenCreate(client func() (kubernetes.Interface, error)) *cobra.Command {
	var ttl time.Duration
	var command bool
	var description string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token, or the whole command for a node to join",
		Long: `Makes a bootstrap token, as kubeadm does, and prints it. Whoever has it can become a node of the cluster, under a name that no node has, until
it expires; then it is gone, and nodes that joined stay.`,
		Example: `  kith-k8s token create --print-join-command
  kith-k8s token create --ttl 15m > /run/join-token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := client()
			if err != nil {
				return err
			}
			where, hash, err := join.Way(cmd.Context(), c)
			if err != nil {
				return err
			}
			t, err := join.CreateToken(cmd.Context(), c, ttl, description)
			if err != nil {
				return err
			}
			if command {
				fmt.Fprintf(cmd.OutOrStdout(), "kith-k8s agent --server %s --token %s --ca-cert-hash %s\n", where, t, hash)
			} else {
				fmt.Fprintln(cmd.OutOrStdout(), t)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 24*time.Hour, "how long it is good, 1m to 720h")
	cmd.Flags().BoolVar(&command, "print-join-command", false, "print the command that a node joins with")
	cmd.Flags().StringVar(&description, "description", "", "what it is for, for token list")
	return cmd
}

func tokenList(client func() (kubernetes.Interface, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tokens that are good, without their secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := client()
			if err != nil {
				return err
			}
			list, err := join.ListTokens(cmd.Context(), c)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, "ID\tEXPIRES\tDESCRIPTION")
			for _, t := range list {
				expires := "never"
				if !t.Expires.IsZero() {
					expires = "in " + time.Until(t.Expires).Round(time.Second).String()
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", t.ID, expires, t.Description)
			}
			return w.Flush()
		},
	}
}

// administrator is a client of the cluster whose server this machine is, or of that of a kubeconfig.
func administrator(kubeconfig string) (kubernetes.Interface, error) {
	if kubeconfig == "" {
		kubeconfig = os.Getenv("KUBECONFIG")
	}
	if kubeconfig == "" {
		kubeconfig = filepath.Join(config.Default().DataDir, "admin.kubeconfig")
	}
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w; tokens are made on the server, as root", kubeconfig, err)
	}
	return kubernetes.NewForConfig(rest)
}
