package daemon

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/api"
	"kith.dev/core/fence"
	"kith.dev/core/fenced"
	"kith.dev/core/guestnet"
	"kith.dev/core/netplan"
	"kith.dev/daemon/backend"
)

// newFence makes the fence around guests. The engine's ranges must be known.
func (d *Daemon) newFence() (*fence.Fence, error) {
	facts := d.engine.Facts()
	cfg := fence.Config{Tunnel: netplan.Tunnel, Pods: facts.Network.Pods, Services: facts.Network.Services, Node: facts.NodeIP, DNS: facts.Network.DNS(), IPv6: facts.Network.IPv6, Kernel: &d.kernel, Log: d.log}
	if facts.GuestLinks {
		cfg.Group = guestnet.Group
	}
	if d.cfg.Lease != "" { // a cluster of several nodes, where `kithd node` keeps a fence on each of the others
		cfg.Self = facts.NodeName
	}
	cfg.Changed = d.fenceMoved.Notify
	return fence.New(cfg)
}

// keepFenced has the cluster know on which nodes guests may run: on the others there is no fence.
func (d *Daemon) keepFenced(ctx context.Context, mgr manager.Manager, c client.Client, own *fence.Fence) (*fenced.Keeper, error) {
	namespace, _, _ := strings.Cut(d.cfg.Lease, "/")
	k := fenced.New(fenced.Config{
		Client: c, Self: d.engine.Facts().NodeName, Namespace: namespace, Own: func(self *corev1.Node) (fenced.Reason, string) { return ownFence(self, own.Kept()) },
		Changed: d.tellFenced, Log: d.log,
	})
	go func() {
		for {
			moved := d.fenceMoved.Wait()
			k.Again()
			select {
			case <-moved:
			case <-ctx.Done():
				return
			}
		}
	}()
	return k, k.SetupWithManager(mgr)
}

// ownFence says how the fence is that this process keeps, for the node that it works on: on another machine it fences nobody there.
func ownFence(self *corev1.Node, kept error) (why fenced.Reason, more string) {
	here, err := net.InterfaceAddrs()
	is := func(a net.Addr) bool {
		own, err := netip.ParsePrefix(a.String())
		return err == nil && slices.ContainsFunc(self.Status.Addresses, func(n corev1.NodeAddress) bool {
			its, err := netip.ParseAddr(n.Address)
			return err == nil && n.Type == corev1.NodeInternalIP && its == own.Addr()
		})
	}
	switch {
	case err != nil:
		return fenced.Down, err.Error()
	case !slices.ContainsFunc(here, is):
		return fenced.Elsewhere, ""
	case errors.Is(kept, fence.ErrUntold):
		return fenced.Starting, ""
	case kept != nil:
		return fenced.Down, kept.Error()
	}
	return fenced.Alive, ""
}

// tellFenced is of a node that takes guests no more, or does again.
func (d *Daemon) tellFenced(v fenced.Verdict) {
	e := api.Event{Type: api.EventNodeTakesGuests, Severity: api.SeverityInfo, Object: "node/" + v.Node, Message: "guests may run on node " + v.Node + " again: a fence is alive there"}
	if v.Why != fenced.Alive {
		e.Type, e.Severity, e.Message = api.EventNodeLeftOut, api.SeverityWarning, "no new guest runs on node "+v.Node+": "+backend.WhyLeftOut(v)
	}
	d.publish(e)
}

// fenced runs the engine, with the fence up and the network made before its first guest.
func (d *Daemon) fenced(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if d.fence != nil {
			if err := d.fence.Raise(); err != nil {
				return err
			}
		}
		if d.guests != nil {
			if err := d.guests.Raise(); err != nil {
				return err
			}
		}
		return run(ctx)
	}
}

// followGuests gives the fence of this cluster.
func (d *Daemon) followGuests(ctx context.Context) (*fence.Fence, error) {
	if d.fence != nil {
		return d.fence, nil
	}
	f, err := d.newFence()
	if err == nil {
		go d.keep(ctx, "the fence around guests", f.Run)
	}
	return f, err
}
