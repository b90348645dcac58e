package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"k8s.io/client-go/kubernetes"

	"kith.dev/core/local/cluster"
	"kith.dev/daemon/config"
	"kith.dev/daemon/controllerlog"
	"kith.dev/daemon/leader"
)

// Lead runs work as soon as this kithd is the one of its cluster that works, if there may be several.
func Lead(ctx context.Context, cfg config.Config, log *slog.Logger, work func(context.Context, *leader.Term) error) error {
	if cfg.Lease == "" {
		return work(ctx, nil)
	}
	controllerlog.To(log) // the elector, too
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

// During has this kithd write in the cluster while it holds the lease, and have packets go on without it as long as most of the nodes that asked for
// it, when it was lost, still do: those that reach the API server turn to whoever works then.
func (d *Daemon) During(term *leader.Term) {
	d.term = term
	term.StayWhile(d.ways.Most)
}

// termed has requests that change something wait while the lease is not held.
type termed struct {
	term *leader.Term
	next http.RoundTripper
}

func (t termed) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if err := t.term.Wait(r.Context()); err != nil {
			return nil, err
		}
	}
	return t.next.RoundTrip(r)
}
