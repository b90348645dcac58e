package main

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/cluster"
	"kith.dev/core/places"
	"kith.dev/daemon"
	"kith.dev/daemon/config"
	"kith.dev/daemon/uninstall"
)

// uninstallCommand is for the chart's Job before its release is removed, and nobody types it.
func uninstallCommand() *cobra.Command {
	var deployment, kubeconfig string
	var patience time.Duration
	c := &cobra.Command{
		Use: "uninstall", Short: "Take Kith out of the cluster that this runs in", Args: cobra.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			namespace, name, both := strings.Cut(deployment, "/")
			if !both {
				return fmt.Errorf("--deployment: %q is not NAMESPACE/NAME", deployment)
			}
			rest, err := cluster.Config(kubeconfig, "")
			if err != nil {
				return err
			}
			scheme := runtime.NewScheme()
			utilruntime.Must(clientgoscheme.AddToScheme(scheme))
			utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
			utilruntime.Must(v1alpha1.AddToScheme(scheme))
			all, err := client.New(rest, client.Options{Scheme: scheme})
			if err != nil {
				return err
			}
			to, err := logTo(places.Here(), os.Getenv)
			if err != nil {
				return err
			}
			log := logger(config.Default(), to)
			daemon.Quiet(log)
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return uninstall.Run(ctx, uninstall.Config{
				Client: all, Deployment: types.NamespacedName{Namespace: namespace, Name: name}, Patience: patience, Log: log,
			})
		},
	}
	c.Flags().StringVar(&deployment, "deployment", "", "NAMESPACE/NAME of the Deployment of kithd")
	c.Flags().DurationVar(&patience, "patience", time.Minute, "how long peers have to be told, and pods to come home")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "file that leads to the cluster, in place of the pod's own account")
	return c
}
