package daemon

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"kith.dev/core/base/systemd"
	"kith.dev/core/local/cluster"
	"kith.dev/core/net/gateway"
	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/guestnet"
	"kith.dev/daemon/choose"
	"kith.dev/daemon/config"
	"kith.dev/daemon/idle"
)

// makeEngine makes the engine, and what is made for its ranges: the gateway, and the fence where they are known by now.
func (d *Daemon) makeEngine() (err error) {
	network := netplan.Cluster{Pods: d.cfg.PodRange, Services: d.cfg.ServiceRange}
	switch d.cfg.Engine {
	case config.EngineNone:
		return nil
	case config.EngineKubeconfig:
		d.engine, err = d.makeKubeconfig(network)
	case config.EngineK3s:
		d.engine, err = d.makeK3s(network)
	default:
		if d.cfg.IPv6 {
			network.IPv6 = netplan.Usual6(d.me.ID())
		}
		d.engine, err = cluster.NewBuiltin(cluster.BuiltinConfig{
			NodeName: d.cfg.Name, ClusterID: d.me.ID().Compact(), DataDir: filepath.Join(d.cfg.DataDir, "k8s"), RunDir: filepath.Join(d.cfg.RunDir, "k8s"),
			RuntimeDir: d.cfg.RuntimeDir, ImagesDir: d.cfg.ImagesDir, Network: network,
			ExposeLAN: d.cfg.Expose == config.ExposeLAN, Flags: d.cfg.EngineFlags, Log: d.log,
		})
	}
	if err != nil {
		return err
	}
	if d.cfg.IPv6 && d.cfg.Engine != config.EngineBuiltin { // that auto chose
		d.log.Warn("ipv6 is without effect: which families pods have is this cluster's own configuration", "engine", d.cfg.Engine)
	}
	facts := d.engine.Facts()
	if facts.GuestLinks {
		if d.fence, err = d.newFence(); err != nil {
			return err
		}
		d.guests = guestnet.New(facts.Network, d.log)
	}
	var ports []uint16 // of the node's own address that pods at peers may connect to
	if facts.API.IsValid() {
		ports = append(ports, facts.API.Port())
	}
	var guests uint32
	if facts.GuestLinks {
		guests = guestnet.Group
	}
	d.gateway, err = gateway.New(gateway.Config{
		Device: netplan.Tunnel, Address: facts.Network.Gateway(), ListenPort: d.cfg.WireGuardPort, PrivateKey: d.tunnelKey,
		Pods: facts.Network.Pods, IPv6: facts.Network.IPv6, Reserved: []netip.Prefix{facts.Network.Services}, Guests: guests, HostPorts: ports, Changed: d.tunnelsChanged, Kernel: &d.kernel, Log: d.log,
	})
	return err
}

// rangePatience is how long a cluster is asked for its range of pods while kithd starts.
const rangePatience = 5 * time.Second

// makeKubeconfig makes the engine of a cluster that is there. Gateway and fence are made for its range of pods, so it is asked now if the owner did
// not say.
func (d *Daemon) makeKubeconfig(network netplan.Cluster) (cluster.Engine, error) {
	k, err := cluster.NewKubeconfig(cluster.KubeconfigConfig{
		Path: d.cfg.Kubeconfig, Context: d.cfg.KubeconfigContext, NodeName: d.cfg.NodeName, NodeIP: d.cfg.KubeletAddress, Network: network, Assumed: !d.cfg.PodRangeSet, Log: d.log,
	})
	if err != nil || d.cfg.PodRangeSet {
		return k, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), rangePatience)
	defer cancel()
	pods, err := k.FindPods(ctx)
	switch {
	case err != nil:
		d.log.Warn("the cluster does not say its range of pods yet; the usual one is taken until it does", "podRange", network.Pods, "err", err)
	case pods != d.cfg.PodRange:
		d.log.Info("the cluster says its range of pods", "podRange", pods)
		d.cfg.PodRange, d.backend.Settings.PodRange = pods, pods
	}
	return k, nil
}

// makeK3s makes the engine of a K3s that kithd runs, or of one that is a service of this machine.
func (d *Daemon) makeK3s(network netplan.Cluster) (cluster.Engine, error) {
	if d.cfg.K3sBinary != "" {
		return cluster.NewK3s(cluster.K3sConfig{
			Binary: d.cfg.K3sBinary, NodeName: d.cfg.Name, DataDir: filepath.Join(d.cfg.DataDir, "k3s"), RunDir: filepath.Join(d.cfg.RunDir, "k3s"),
			ImagesDir: d.cfg.ImagesDir, Network: network, ExposeLAN: d.cfg.Expose == config.ExposeLAN, Flags: d.cfg.EngineFlags, Log: d.log,
		})
	}
	cfg := cluster.K3sServiceConfig{NodeName: d.cfg.NodeName, NodeIP: d.cfg.KubeletAddress, Network: network, Log: d.log}
	if unit, found := systemd.Find(context.Background(), choose.K3sUnit); found {
		cfg.Unit = unit
	}
	return cluster.NewK3sService(cfg)
}

// letSleep has the engine sleep while nobody needs it.
func (d *Daemon) letSleep(ctx context.Context) error {
	s := &idle.Sleeper{Engine: d.engine, Uses: &d.uses, After: d.cfg.EngineIdle, May: d.maySleep, Log: d.log}
	return s.Run(ctx)
}

// maySleep decides whether the engine may sleep now.
func (d *Daemon) maySleep(ctx context.Context) (idle.Verdict, error) {
	c := d.cluster.Load()
	switch {
	case c == nil:
		return idle.Verdict{Stay: idle.Starting}, nil
	case !d.engine.Decides():
		return idle.Verdict{Stay: idle.Tether}, nil
	}
	if c.Host.Copying() {
		return idle.Verdict{Stay: idle.Volumes, What: "a copy of a guest's"}, nil
	}
	v, err := idle.Look(ctx, c.Client, c.Fresh, c.Client.Now(), time.Now(), d.cfg.EngineIdle)
	if err != nil || v.Stay != "" {
		return v, err
	}
	self, err := os.Executable()
	if err != nil {
		return v, err
	}
	facts := d.engine.Facts()
	if who, err := idle.Direct(facts.API.Port(), self, facts.Program); err != nil || who != "" {
		return idle.Verdict{Stay: idle.Connected, What: who}, err
	}
	return v, nil
}
