package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"kith.dev/core/api"
	"kith.dev/core/net/netplan"
	"kith.dev/core/net/overlay"
	"kith.dev/core/provide/fence"
	"kith.dev/core/provide/fenced"
	"kith.dev/core/provide/guestnet"
	"kith.dev/core/provide/translate"
	"kith.dev/daemon/backend"
)

// fenceConfig says what is fenced, and how guests are known. The engine's ranges must be known.
func (d *Daemon) fenceConfig() fence.Config {
	facts := d.engine.Facts()
	cfg := fence.Config{Tunnel: netplan.Tunnel, Pods: facts.Network.Pods, Services: facts.Network.Services, Node: facts.NodeIP, NodeName: facts.NodeName, DNS: facts.Network.DNS(), IPv6: facts.Network.IPv6, Kernel: &d.kernel, Log: d.log}
	if facts.GuestLinks {
		cfg.Group = guestnet.Group
	}
	if d.cfg.Lease != "" { // a cluster of several nodes, where `kithd node` keeps a fence on each of the others
		cfg.Self = facts.NodeName
	} else if !facts.GuestLinks {
		cfg.Mark = filepath.Join(d.cfg.DataDir, "guests-here")
	}
	cfg.Changed = d.fenceMoved.Notify
	return cfg
}

// newFence makes the fence around guests.
func (d *Daemon) newFence() (*fence.Fence, error) {
	f, err := fence.New(d.fenceConfig())
	if err == nil {
		d.follow(f)
	}
	return f, err
}

// follow tells the owner what a fence finds of the cluster's range.
func (d *Daemon) follow(f *fence.Fence) {
	f.OnAstray(func(list []fence.Astray) {
		if len(list) > 0 {
			d.publish(api.Event{Type: api.EventRangeWrong, Severity: api.SeverityError, Message: wrongRange(f.Pods(), list)})
		}
		d.changed.Notify()
	})
	d.around.Store(f)
}

// failing is what is wrong with this kithd.
func (d *Daemon) failing() []api.Problem { return append(d.parts.problems(), d.rangeProblems()...) }

// rangeProblems tells that podRange is not what the cluster says, and of guests that are not bound to their links.
func (d *Daemon) rangeProblems() (list []api.Problem) {
	f := d.around.Load()
	if f == nil {
		return nil
	}
	if astray := f.Astray(); len(astray) > 0 {
		list = append(list, api.Problem{
			Severity: api.SeverityError, What: wrongRange(f.Pods(), astray), Why: "guests with addresses out of it have no network, no new ones are taken in, and peers are told of a range that is not so",
			Do: "set podRange to the range of all pods of this cluster (the network plugin's, cluster-cidr of the controller-manager), and start kithd again",
		})
	}
	switch addresses, err := f.Unbound(); {
	case err != nil:
		list = append(list, api.Problem{
			Severity: api.SeverityWarning, What: "guests are not bound to their links", Why: err.Error() + ": below IPv4, as by IPv6 of their link, they may reach the node and pods beside them",
			Do: "use a kernel with nf_tables of the families arp and bridge",
		})
	case len(addresses) > 0:
		list = append(list, api.Problem{
			Severity: api.SeverityWarning, What: fmt.Sprintf("the links of guests with the addresses %v were not found", addresses),
			Why: "the network plugin connects pods in a way that Kith does not know: below IPv4, as by IPv6 of their link, they may reach the node and pods beside them",
			Do:  "look whether the plugin keeps pods from forging addresses, and turn IPv6 off on their links; or have guests run elsewhere",
		})
	}
	return list
}

// closedToGuests says why no guest is let in now; "" when they are.
func (d *Daemon) closedToGuests() string {
	if f := d.around.Load(); f != nil {
		if list := f.Astray(); len(list) > 0 {
			return "this cluster takes no guests in for now: its range of pods is not as its owner set it"
		}
	}
	return ""
}

func wrongRange(pods netip.Prefix, list []fence.Astray) string {
	var found []string
	for _, a := range list {
		found = append(found, a.String())
	}
	return fmt.Sprintf("podRange is %s, and %s", pods, strings.Join(found, "; "))
}

// keepFenced has the cluster know on which nodes guests may run: on the others there is no fence.
func (d *Daemon) keepFenced(ctx context.Context, mgr manager.Manager, c client.Client, own *fence.Fence) (*fenced.Keeper, error) {
	namespace, _, _ := strings.Cut(d.cfg.Lease, "/")
	k := fenced.New(fenced.Config{
		Cut:    d.cutOff,
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

// cutOff says what does not come through between this machine and a node.
func (d *Daemon) cutOff(node *corev1.Node) string {
	its, here := overlay.AddressOf(node), d.engine.Facts().NodeIP
	direction, port := d.ways.Cut(its)
	switch direction {
	case overlay.To:
		return fmt.Sprintf("UDP port %d from %s (%s) to %s (%s)", port, node.Name, its, d.engine.Facts().NodeName, here)
	case overlay.From:
		return fmt.Sprintf("UDP port %d from %s (%s) to %s (%s)", port, d.engine.Facts().NodeName, here, node.Name, its)
	case overlay.Open:
	}
	return ""
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

// translate has guests to whom a network plugin gives addresses use those of their homes.
func (d *Daemon) translate(ctx context.Context, mgr manager.Manager) error {
	if d.engine.Facts().GuestLinks {
		return nil // they have those
	}
	t := translate.New(d.fenceConfig())
	go d.keep(ctx, "the addresses of guests' homes", t.Run)
	return t.SetupWithManager(mgr)
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
