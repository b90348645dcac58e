package backend

import (
	"context"

	"k8s.io/apimachinery/pkg/api/resource"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/gateway"
	"kith.dev/daemon/metrics"
)

// Facts are what the metrics show.
func (b *Backend) Facts(ctx context.Context) metrics.Facts {
	status, err := b.Status(ctx)
	f := metrics.Facts{
		EngineKind: string(status.Engine.Kind), EngineState: string(status.Engine.State),
		Contacts: map[string]int{}, Problems: map[string]int{}, Reconciles: reconciles(),
	}
	for _, p := range status.Problems {
		f.Problems[string(p.Severity)]++
	}
	for _, c := range b.Contacts.Snapshot() {
		f.Contacts[string(c.State)]++
	}
	if b.Gateway != nil {
		f.Drops = b.Gateway.Drops()
	}
	c := b.Cluster()
	if err != nil || c == nil {
		return f
	}
	seen, err := b.gather(ctx)
	if err != nil {
		return f
	}
	f.Readable, f.RequestsIn = true, status.Counts.Requests
	f.Offered, f.Promised = floats(status.Sharing.Amounts), floats(status.Sharing.Used)
	f.Contracts, f.Used = map[metrics.Contract]int{}, metrics.Amounts{}
	for i := range seen.contracts {
		ctr := c.contract(&seen.contracts[i], seen)
		f.Contracts[metrics.Contract{Role: string(ctr.Role), State: string(ctr.State)}]++
		if ctr.Role == api.Provider {
			for name, n := range floats(ctr.Used) {
				f.Used[name] += n
			}
		}
	}
	b.peerFacts(&f, seen)
	c.guestFacts(ctx, &f)
	return f
}

// peerFacts adds the Peers; what is merely nearby is only counted.
func (b *Backend) peerFacts(f *metrics.Facts, seen facts) {
	var tunnels map[string]gateway.Stats
	if b.Gateway != nil {
		tunnels = b.Gateway.StatsAll()
	}
	for _, k := range b.Directory.All() {
		if k.Peer == nil {
			continue
		}
		view := b.view(k, seen)
		p := metrics.Peer{
			Name: k.Name, Outgoing: string(view.Outgoing), Incoming: string(view.Incoming), Reachable: k.Contact.Reachable,
			RTT: k.RTT, Clock: k.Clock, PodsAbroad: view.Pods.Abroad,
		}
		if k.Peer.Status.Outgoing.State == v1alpha1.StateRequested {
			f.RequestsOut++
		}
		for _, ctr := range seen.contracts {
			if ctr.Spec.Peer == k.Name && ctr.Spec.Role == v1alpha1.RoleConsumer {
				p.Granted, p.Used = floats(quantities(ctr.Spec.Resources)), floats(view.Used)
			}
		}
		if t, ok := tunnels[k.ID.String()]; ok {
			p.Tunnel = &metrics.Tunnel{Up: t.Up, LastHandshake: t.LastHandshake, Received: t.Received, Sent: t.Sent, MTU: t.MTU}
		}
		f.Peers = append(f.Peers, p)
	}
}

func (c *Cluster) guestFacts(ctx context.Context, f *metrics.Facts) {
	guests, err := c.Host.Guests(ctx)
	if err != nil {
		return
	}
	f.Guests = map[metrics.Guest]int{}
	for _, g := range guests {
		f.Guests[metrics.Guest{Peer: g.Consumer, Phase: g.Phase}]++
	}
}

// floats reads amounts as cores, bytes or pieces.
func floats(amounts api.Resources) metrics.Amounts {
	out := metrics.Amounts{}
	for name, text := range amounts {
		if q, err := resource.ParseQuantity(text); err == nil {
			out[name] = q.AsApproximateFloat64()
		}
	}
	return out
}

// reconciles reads what controller-runtime counts in its own registry.
func reconciles() []metrics.Reconciles {
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		return nil
	}
	byName := map[string]*metrics.Reconciles{}
	var order []string
	for _, family := range families {
		if name := family.GetName(); name != "controller_runtime_reconcile_total" && name != "controller_runtime_reconcile_errors_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			name := labels["controller"]
			if byName[name] == nil {
				byName[name] = &metrics.Reconciles{Controller: name, Results: map[string]float64{}}
				order = append(order, name)
			}
			if result, ok := labels["result"]; ok {
				byName[name].Results[result] = m.GetCounter().GetValue()
			} else {
				byName[name].Errors = m.GetCounter().GetValue()
			}
		}
	}
	list := make([]metrics.Reconciles, len(order))
	for i, name := range order {
		list[i] = *byName[name]
	}
	return list
}
