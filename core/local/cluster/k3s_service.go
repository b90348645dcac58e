package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kith.dev/core/base/durable"
	"kith.dev/core/local/cluster/k3sconfig"
	"kith.dev/core/net/netplan"
)

// K3sServiceConfig names a K3s that runs already. Empty fields are K3s' own places.
type K3sServiceConfig struct {
	Kubeconfig string     // of the administrator; usually what K3s' configuration says, or /etc/rancher/k3s/k3s.yaml
	Config     string     // K3s' configuration file, beside which are its drop-ins
	NodeName   string     // the node that this machine is; empty: the host name, or the only node
	NodeIP     netip.Addr // as KubeconfigConfig.NodeIP
	Network    netplan.Cluster
	Unit       Unit // nil: it is no service of systemd
	Log        *slog.Logger
}

// Unit is a service of the system.
type Unit interface {
	Name() string
	// State is what the system says of it, in its words: "inactive (dead)". It is "active (running)" when nothing is wrong.
	State(ctx context.Context) (string, error)
	Restart(ctx context.Context) error
}

// K3sService is a K3s that its owner runs as a systemd service. It is watched through its kubeconfig. Kith restarts its unit for one
// reason only: Decide.
type K3sService struct {
	*attached
	cfg K3sServiceConfig
}

// attached is an alias, because embedding Kubeconfig under its own name would collide with the method Kubeconfig.
type attached = Kubeconfig

// K3sKubeconfig is where the K3s of a configuration file writes the administrator's kubeconfig.
func K3sKubeconfig(file string) (string, error) {
	all, err := k3sconfig.Read(file)
	if err != nil {
		return "", fmt.Errorf("configuration of K3s: %w", err)
	}
	if path := all.Last("write-kubeconfig"); path != "" {
		return path, nil
	}
	return k3sconfig.Kubeconfig, nil
}

// NewK3sService reads the kubeconfig and the configuration of the K3s. It need not run.
func NewK3sService(cfg K3sServiceConfig) (*K3sService, error) {
	if cfg.Config == "" {
		cfg.Config = k3sconfig.File
	}
	all, err := k3sconfig.Read(cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration of K3s: %w", err)
	}
	if cfg.Kubeconfig == "" {
		if cfg.Kubeconfig, err = K3sKubeconfig(cfg.Config); err != nil {
			return nil, err
		}
	}
	if cfg.Network, err = rangesOf(all, cfg.Network); err != nil {
		return nil, fmt.Errorf("configuration of K3s in %s: %w", cfg.Config, err)
	}
	if cfg.NodeName == "" {
		cfg.NodeName = all.Last("node-name")
	}
	inner, err := NewKubeconfig(KubeconfigConfig{Path: cfg.Kubeconfig, NodeName: cfg.NodeName, NodeIP: cfg.NodeIP, Network: cfg.Network, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("K3s that runs as a service: %w", err)
	}
	s := &K3sService{attached: inner, cfg: cfg}
	known := func(f *Facts) {
		f.Kubeconfig, f.Runtime, f.Switchable = cfg.Kubeconfig, runtimeOf(all), cfg.Unit != nil
		f.NoTunnel = all.Last("egress-selector-mode") != "disabled"
	}
	known(&inner.facts)
	inner.learn = func(f *Facts, node *corev1.Node) error {
		known(f)
		own, err := netip.ParsePrefix(node.Spec.PodCIDR)
		if err == nil && own.Addr().Is4() && !f.Network.Pods.Contains(own.Addr()) {
			return fmt.Errorf("K3s gives the pods of node %s addresses of %s, and kithd takes the range of pods to be %s: set podRange to the cluster-cidr of K3s, or "+
				"write that into %s", node.Name, own, f.Network.Pods, cfg.Config)
		}
		return nil
	}
	inner.explain = s.why
	return s, nil
}

// why adds what the unit says to the reason why K3s does not answer.
func (s *K3sService) why(ctx context.Context, err error) error {
	if s.cfg.Unit == nil {
		return err
	}
	state, stateErr := s.cfg.Unit.State(ctx)
	switch {
	case stateErr != nil || strings.HasPrefix(state, "active"):
		return err
	case strings.HasPrefix(state, "activating"):
		return fmt.Errorf("%s is starting: %w", s.cfg.Unit.Name(), err)
	}
	return fmt.Errorf("%s is %s; start it: systemctl start %s", s.cfg.Unit.Name(), state, s.cfg.Unit.Name())
}

// dropin is what Kith adds to the owner's configuration while K3s must not decide.
func (s *K3sService) dropin() string {
	return filepath.Join(k3sconfig.Dropins(s.cfg.Config), "zz-kith.yaml")
}

// Decides reports what Decide was told last: the drop-in says so, also to K3s itself when it starts anew.
func (s *K3sService) Decides() bool {
	_, err := os.Stat(s.dropin())
	return err != nil
}

// Decide writes or removes the drop-in and restarts K3s through its unit; pods keep running. It completes a change that an earlier process
// began.
func (s *K3sService) Decide(ctx context.Context, on bool) error {
	begun := s.dropin() + ".begun" // no name that K3s reads
	if _, err := os.Stat(begun); s.Decides() == on && err != nil {
		return s.WaitReady(ctx)
	}
	if s.cfg.Unit == nil {
		return fmt.Errorf("K3s runs here without a unit of systemd, by which it could be started anew: %w", ErrNotOurs)
	}
	err := os.MkdirAll(filepath.Dir(s.dropin()), 0o755)
	if err == nil {
		err = durable.WriteFile(begun, nil, 0o600)
	}
	if err == nil && on {
		err = durable.Remove(s.dropin())
	} else if err == nil {
		err = durable.WriteFile(s.dropin(), written(undecided()), 0o600)
	}
	if err != nil {
		return fmt.Errorf("tell K3s whether to decide: %w", err)
	}
	if err := s.cfg.Unit.Restart(ctx); err != nil {
		return fmt.Errorf("restart %s: %w", s.cfg.Unit.Name(), err)
	}
	s.set(Starting, "K3s was started anew, to have it decide or not")
	select {
	case s.wake <- struct{}{}:
	default:
	}
	if err := s.WaitReady(ctx); err != nil {
		return err
	}
	return durable.Remove(begun)
}

// ErrNoK3s says that no K3s was found.
var ErrNoK3s = errors.New("there is no K3s here: neither a kubeconfig of one, nor k3s in PATH; install K3s, or set k3sBinary or another engine")
