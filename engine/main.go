// Kith-k8s is the built-in Kubernetes of Kith: upstream's components, kine over SQLite and CoreDNS in one
// process, as K3s composes them, for one laptop. kithd runs `kith-k8s server` as its child; a user may run
// `kith-k8s kubectl`, or call the program as kubectl. Called as k3s it stands in for K3s, for tests (package k3s).
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	componentversion "k8s.io/component-base/version"

	"kith.dev/engine/k3s"
	"kith.dev/engine/userns"
)

// version is Kith's, set when linking.
var version = "unknown"

func main() {
	if filepath.Base(os.Args[0]) == "kubectl" {
		kubectl(os.Args)
	}
	// kubectl parses its arguments itself, so it is not a command like the others.
	if len(os.Args) > 1 && os.Args[1] == "kubectl" {
		kubectl(os.Args[1:])
	}
	if args, called := asK3s(os.Args); called {
		if err := k3sMain(args); err != nil {
			fmt.Fprintln(os.Stderr, "k3s:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == userns.Command {
		if err := userns.Inside(); err != nil {
			fmt.Fprint(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Kubernetes has put a flag of that name into the process, which nothing here would act upon.
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		os.Args[1] = "version"
	}
	root := &cobra.Command{
		Use:           "kith-k8s",
		Short:         "The Kubernetes of one laptop",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serverCommand(), agentCommand(), tokenCommand(), timelineCommand(), versionCommand(), &cobra.Command{
		Use: "kubectl", Short: "Control the cluster (the real kubectl, which finds this laptop's cluster by itself)",
	})
	root.CompletionOptions.DisableDefaultCmd = true
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "kith-k8s:", err)
		os.Exit(1)
	}
}

// asK3s gives the arguments of K3s when the program is called as K3s is.
func asK3s(args []string) ([]string, bool) {
	switch {
	case filepath.Base(args[0]) == k3s.Name:
		return args[1:], true
	case len(args) > 1 && args[1] == k3s.Name:
		return args[2:], true
	}
	return nil, false
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Kith and of Kubernetes",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "kith-k8s", version, "kubernetes", kubernetesVersion())
		},
	}
}

func kubernetesVersion() string { return componentversion.Get().GitVersion }
