package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/contract"
	"kith.dev/core/gateway"
	"kith.dev/core/peering"
	"kith.dev/core/version"
	"kith.dev/daemon/doctor"
)

// Doctor looks for what keeps Kith from working.
func (b backend) Doctor(ctx context.Context, ref string, report func(api.Progress)) ([]api.Finding, error) {
	d := b.d
	var peers []known
	if ref != "" {
		k, err := d.directory.find(ref)
		if err != nil {
			return nil, err
		}
		peers = []known{k}
	} else {
		for _, k := range d.directory.all() {
			if k.peer != nil {
				peers = append(peers, k)
			}
		}
	}
	machine := doctor.MachineOf(d.cfg)
	machine.PID, machine.Aliases = os.Getpid(), map[string][]netip.Prefix{}
	groups := []doctor.Group{d.checkSelf, d.checkEngine}
	for _, k := range peers {
		if k.peer != nil {
			machine.Aliases[k.name] = k.peer.Status.Network.Aliases()
		}
	}
	groups = append(groups, machine.Groups()...)
	for _, k := range peers {
		groups = append(groups, func(ctx context.Context, report func(api.Finding)) { d.checkPeer(ctx, k, report) })
	}
	return doctor.Run(ctx, func(f api.Finding) { report(api.Progress{Message: f.What, Finding: &f}) }, groups...), nil
}

// checkSelf tells that the daemon answers, and which parts of it fail.
func (d *Daemon) checkSelf(_ context.Context, report func(api.Finding)) {
	report(api.Finding{
		Area: api.AreaDaemon, Name: "kithd", State: api.CheckOK,
		What: fmt.Sprintf("kithd %s answers, up %s", version.Version, howLong(time.Since(d.started))),
	})
	for _, p := range d.parts.problems() {
		report(api.Finding{Area: api.AreaDaemon, Name: "part", State: api.CheckFail, What: p.What, Why: p.Why, Do: p.Do})
	}
}

func (d *Daemon) checkEngine(ctx context.Context, report func(api.Finding)) {
	e := doctor.Engine{Kind: d.cfg.Engine}
	if d.engine != nil {
		state := d.engine.State()
		e.State, e.Why = string(state.Phase), state.Why
		e.Ready = d.askAPIServer
		facts := d.engine.Facts()
		e.Node = func(ctx context.Context) (doctor.Node, error) { return d.node(ctx, facts.NodeName) }
		if e.Log = facts.Log; facts.Ours {
			e.Address, e.ClusterDNS = facts.NodeIP, netip.AddrPortFrom(facts.Network.DNS(), 53)
		}
	}
	e.Check(ctx, report)
}

// directly is a client that goes to the API server, past all caches.
func (d *Daemon) directly() (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(rest.CopyConfig(d.engine.RESTConfig()))
}

func (d *Daemon) askAPIServer(ctx context.Context) (string, error) {
	c, err := d.directly()
	if err != nil {
		return "", err
	}
	if _, err := c.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return "", err
	}
	text, err := c.RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	return v.GitVersion, json.Unmarshal(text, &v)
}

func (d *Daemon) node(ctx context.Context, name string) (doctor.Node, error) {
	c, err := d.directly()
	if err != nil {
		return doctor.Node{}, err
	}
	node, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return doctor.Node{}, err
	}
	return nodeOf(node), nil
}

func (d *Daemon) checkPeer(ctx context.Context, k known, report func(api.Finding)) {
	p := doctor.Peer{Name: k.name, ID: k.id, Me: d.me, Addresses: k.addresses, Port: d.cfg.WireGuardPort}
	p.Books = func(ctx context.Context) ([]peering.ContractRef, error) {
		client, ok := d.contacts.Client(k.id.Compact())
		if !ok {
			return nil, fmt.Errorf("too many clusters are nearby to keep contact with %s", k.name)
		}
		return client.Contracts(ctx)
	}
	if c := d.cluster.Load(); c != nil {
		ours, err := c.provider.Contracts(ctx, peering.Caller{ID: k.id})
		if err != nil {
			d.log.Debug("own contracts could not be read", "peer", k.name, "err", err)
		}
		p.Contracts = ours
	}
	for _, ctr := range p.Contracts {
		if ctr.Role == contract.Consumer {
			p.Node = func(ctx context.Context) (doctor.Node, error) { return d.node(ctx, v1alpha1.VirtualNodePrefix+k.name) }
		}
	}
	if d.gateway != nil {
		id := k.id.String()
		var s gateway.Stats
		if s, p.HasTunnel = d.gateway.Stats(id); p.HasTunnel {
			p.Tunnel = doctor.Tunnel{Up: s.Up, LastHandshake: s.LastHandshake, Why: s.Why(time.Now()), MTU: s.MTU}
			if s.Endpoint.IsValid() {
				p.Tunnel.Endpoint = s.Endpoint.String()
			}
		}
		p.Echo = func(ctx context.Context, bytes int) (time.Duration, error) {
			rtt, err := d.gateway.Echo(ctx, id, bytes)
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				err = errors.New("three packets had no answer")
			}
			return rtt, err
		}
	}
	p.Check(ctx, report)
}
