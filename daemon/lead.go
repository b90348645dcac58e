package daemon

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"k8s.io/client-go/kubernetes"

	"kith.dev/core/cluster"
	"kith.dev/daemon/config"
	"kith.dev/daemon/leader"
)

// Lead runs work as soon as this kithd is the one of its cluster that works, if there may be several.
func Lead(ctx context.Context, cfg config.Config, log *slog.Logger, work func(context.Context) error) error {
	if cfg.Lease == "" {
		return work(ctx)
	}
	quiet(log) // the elector, too
	rest, err := cluster.Config(cfg.Kubeconfig, cfg.KubeconfigContext)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	node := cfg.NodeName
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return err
		}
	}
	namespace, name, _ := strings.Cut(cfg.Lease, "/")
	return leader.Run(ctx, leader.Config{
		Client: client, Namespace: namespace, Name: name, Node: node, Pod: cfg.PodName, Duration: cfg.LeaseDuration, Log: log,
	}, work)
}
