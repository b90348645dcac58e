package main

import (
	"context"
	"errors"
	"fmt"
	"net"
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

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/base/places"
	"kith.dev/core/base/systemd"
	"kith.dev/core/local/cluster"
	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/daemon/choose"
	"kith.dev/daemon/config"
	"kith.dev/daemon/controllerlog"
	"kith.dev/daemon/uninstall"
)

// uninstallCommand is for the chart's Job before its release is removed, and for `kith uninstall --from-cluster`; nobody types it.
func uninstallCommand() *cobra.Command {
	var deployment, kubeconfig string
	var patience time.Duration
	flags := new(config.Flags)
	c := &cobra.Command{
		Use: "uninstall", Short: "Take Kith out of the cluster that this runs in, or is attached to", Args: cobra.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			cfg := uninstall.Config{Patience: patience}
			if deployment == "" {
				said := c.OutOrStdout()
				cfg.Told = func(done string) { fmt.Fprintln(said, done+": done") }
				return uninstallHere(ctx, flags.Load, cfg)
			}
			namespace, name, both := strings.Cut(deployment, "/")
			if !both {
				return fmt.Errorf("--deployment: %q is not NAMESPACE/NAME", deployment)
			}
			cfg.Deployment = types.NamespacedName{Namespace: namespace, Name: name}
			return uninstallFrom(ctx, kubeconfig, "", cfg)
		},
	}
	c.Flags().StringVar(&deployment, "deployment", "", "NAMESPACE/NAME of the Deployment of kithd; without it the kithd of this machine is meant")
	c.Flags().DurationVar(&patience, "patience", time.Minute, "how long peers have to be told, and pods to come home")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "with --deployment: file that leads to the cluster, in place of the pod's own account")
	flags.AddPath(c.Flags())
	return c
}

// uninstallFrom takes Kith out of the cluster of a kubeconfig.
func uninstallFrom(ctx context.Context, kubeconfig, kubecontext string, cfg uninstall.Config) error {
	rest, err := cluster.Config(kubeconfig, kubecontext)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	if cfg.Client, err = client.New(rest, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	to, err := logTo(places.Here(), os.Getenv)
	if err != nil {
		return err
	}
	cfg.Log = logger(config.Default(), to)
	controllerlog.To(cfg.Log)
	return uninstall.Run(ctx, cfg)
}

// uninstallHere takes Kith out of the cluster that the kithd of this machine is attached to.
func uninstallHere(ctx context.Context, load func() (config.Config, error), cfg uninstall.Config) error {
	here, err := load()
	if err != nil {
		return err
	}
	if here, _, err = choose.Engine(ctx, here); err != nil {
		return err
	}
	kubeconfig := here.Kubeconfig
	switch {
	case here.Lease != "":
		return &api.Error{Code: api.CodeInvalid, Message: "this kithd was installed by the Helm chart", Do: "helm uninstall takes it out of its cluster"}
	case here.Engine == config.EngineK3s && here.K3sBinary == "":
		if kubeconfig, err = cluster.K3sKubeconfig(k3sconfig.File); err != nil {
			return err
		}
	case here.Engine != config.EngineKubeconfig || kubeconfig == "":
		return &api.Error{Code: api.CodeInvalid, Message: "kithd is attached to no cluster of somebody else's", Reason: "its engine is " + here.Engine,
			Do: "the package takes along what it brought: apt purge kith"}
	}
	cfg.Stop = func(ctx context.Context) error { return stopHere(ctx, here.Socket) }
	if !answers(here.Socket) {
		cfg.Patience = 0 // nobody is there who could tell peers anything
	}
	return uninstallFrom(ctx, kubeconfig, here.KubeconfigContext, cfg)
}

// unit is the service of the packages.
const unit = "kithd.service"

// stopHere ends the kithd of this machine where systemd keeps it, for good: at the next boot it would attach itself again.
func stopHere(ctx context.Context, socket string) error {
	if u, found := systemd.Find(ctx, unit); found {
		if err := u.Disable(ctx); err != nil {
			return fmt.Errorf("stop kithd: %w", err)
		}
	}
	if answers(socket) {
		return &api.Error{
			Code: api.CodeConflict, Message: "kithd runs on, and would put back what is taken away", Reason: "it is no service of systemd here",
			Do: "contracts have ended; end kithd (" + places.Here().Stop + ", or Ctrl-C where it was started), and say this once more",
		}
	}
	return nil
}

// answers reports whether a kithd listens there.
func answers(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	return conn.Close() == nil
}
