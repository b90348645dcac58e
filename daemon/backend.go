package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/cluster"
	"kith.dev/core/offloading"
	"kith.dev/core/relations/provider"
	"kith.dev/core/sharing"
	"kith.dev/core/version"
	"kith.dev/daemon/localapi"
)

// backend answers the local API. It reads the cluster's cache and what the rooms know, and changes things by
// writing custom resources: what the CLI can do, kubectl can.
type backend struct{ d *Daemon }

var _ localapi.Backend = backend{}

// Version tells what runs.
func (b backend) Version(context.Context) (api.Version, error) {
	return api.Version{Version: version.Version, Commit: version.Commit, Go: runtime.Version(), Kubernetes: b.d.kubernetes()}, nil
}

// Status is all that a user wants to know at one glance.
func (b backend) Status(ctx context.Context) (api.Status, error) {
	d := b.d
	s := api.Status{
		Name: d.cfg.Name, ID: d.me.ID().String(), ShortID: d.me.ID().Short(), Version: version.Version,
		Mode: api.Autonomous, Started: d.started, Engine: d.engineStatus(), Listen: d.listening(), Exposed: d.exposedStatus(),
	}
	all := d.directory.all()
	s.Counts.Peers = len(all)
	for _, k := range all {
		if k.peer != nil && (k.peer.Status.Outgoing.State == v1alpha1.StateConnected || k.peer.Status.Incoming.State == v1alpha1.StateConnected) {
			s.Counts.Connected++
		}
	}
	if s.Engine.State == api.EngineReady {
		if why := d.degraded(ctx); why != "" {
			s.Engine.State, s.Engine.Why = api.EngineDegraded, why
		}
	}
	s.Problems = d.problems(ctx, s.Engine, all)
	c := d.cluster.Load()
	if c == nil {
		return s, nil
	}
	return s, c.count(ctx, &s)
}

// count fills in what only the cluster knows.
func (c *clusterPart) count(ctx context.Context, s *api.Status) error {
	var requests v1alpha1.PeeringRequestList
	var contracts v1alpha1.ContractList
	var pods corev1.PodList
	if err := errors.Join(c.client.List(ctx, &requests), c.client.List(ctx, &contracts), c.client.List(ctx, &pods)); err != nil {
		return internal(err)
	}
	for i := range requests.Items {
		if provider.Pending(&requests.Items[i]) {
			s.Counts.Requests++
		}
	}
	used := corev1.ResourceList{}
	for _, ctr := range contracts.Items {
		if ctr.DeletionTimestamp != nil {
			continue
		}
		s.Counts.Contracts++
		if ctr.Spec.Role == v1alpha1.RoleProvider {
			add(used, ctr.Spec.Resources)
		}
	}
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case pod.Labels[v1alpha1.LabelConsumer] != "":
			s.Counts.Guests++
		case offloading.Abroad(pod):
			s.Counts.PodsAbroad++
		}
	}
	return c.sharing(ctx, s, used)
}

func (c *clusterPart) sharing(ctx context.Context, s *api.Status, used corev1.ResourceList) error {
	var policy v1alpha1.SharingPolicy
	err := c.client.Get(ctx, named(api.DefaultPolicy), &policy)
	if apierrors.IsNotFound(err) {
		s.Sharing = api.Sharing{Why: "there is no policy named " + api.DefaultPolicy}
		return nil
	}
	if err != nil {
		return internal(err)
	}
	there, err := provider.Supply(ctx, c.client)
	if err != nil {
		return internal(err)
	}
	s.Sharing = api.Sharing{
		Policy: policy.Name, Share: commonShare(policy.Spec.Amounts), Amounts: quantities(sharing.Amounts(&policy, there.Nodes)),
		Used: quantities(used), AutoAccept: policy.Spec.AutoAccept, Paused: policy.Spec.Paused,
	}
	if policy.Spec.Paused {
		s.Sharing.Why = "paused by the owner: contracts in force stay, nothing new is accepted"
	}
	return nil
}

// commonShare is the percentage that all amounts of a policy have in common; empty when they differ.
func commonShare(amounts map[string]v1alpha1.Amount) string {
	share := ""
	for _, a := range amounts {
		if share != "" && string(a) != share || a[len(a)-1] != '%' {
			return ""
		}
		share = string(a)
	}
	return share
}

// Kubeconfig is the administrator's kubeconfig of the local cluster.
func (b backend) Kubeconfig(context.Context) ([]byte, error) {
	if b.d.engine == nil {
		return nil, noEngine()
	}
	text, err := b.d.engine.Kubeconfig()
	if err != nil {
		return nil, &api.Error{Code: api.CodeNotReady, Message: "there is no kubeconfig yet", Reason: err.Error(), Do: "`kith status` shows how far the engine is"}
	}
	return text, nil
}

// atStart is how long a call waits for controllers that are starting on a Kubernetes that is ready: a matter of seconds.
const atStart = 10 * time.Second

// cluster is the part that needs an API server.
func (b backend) cluster(ctx context.Context) (*clusterPart, error) {
	if b.d.engine == nil {
		return nil, noEngine()
	}
	ctx, cancel := context.WithTimeout(ctx, atStart)
	defer cancel()
	for ctx.Err() == nil {
		changed := b.d.changed.Wait()
		if c := b.d.cluster.Load(); c != nil {
			return c, nil
		}
		if b.d.engine.State().Phase != cluster.Ready {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	e := b.d.engineStatus()
	return nil, &api.Error{Code: api.CodeNotReady, Message: "the local Kubernetes is " + string(e.State), Reason: e.Why, Do: "`kith status` shows how far it is"}
}

func noEngine() *api.Error {
	return &api.Error{Code: api.CodeUnsupported, Message: "this kithd runs without a Kubernetes (engine: none)", Reason: "it only finds other clusters", Do: "set engine to builtin or kubeconfig and restart kithd"}
}

func internal(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.CodeInternal, Message: err.Error(), Do: "the log of kithd has more"}
}

func (d *Daemon) listening() []api.Listener {
	list := []api.Listener{
		{Name: "local-api", Network: "unix", Address: d.cfg.Socket},
		{Name: "peer-api", Network: "tcp", Address: d.peerAPI.Addr().String()},
	}
	if d.engine != nil {
		list = append(list, api.Listener{Name: "wireguard", Network: "udp", Address: fmt.Sprintf(":%d", d.cfg.WireGuardPort)})
	}
	if d.metricsAt != nil {
		list = append(list, api.Listener{Name: "metrics", Network: "tcp", Address: d.metricsAt.Addr().String()})
	}
	return list
}

// ago tells a duration for people.
func ago(t time.Time) string {
	switch d := time.Since(t); {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}
