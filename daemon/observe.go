package daemon

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"kith.dev/core/api"
	"kith.dev/core/api/v1alpha1"
	"kith.dev/core/audit"
	"kith.dev/core/gateway"
	"kith.dev/core/hosting/door"
	"kith.dev/core/peering"
	"kith.dev/core/virtualnode"
	"kith.dev/daemon/localapi"
	"kith.dev/daemon/metrics"
)

// newMetrics makes the metrics, and opens their address if there is to be one.
func (d *Daemon) newMetrics() (err error) {
	d.metrics = metrics.New(d.facts, map[string][]string{
		string(audit.PeerAPI): {peering.RefusedRate, peering.RefusedAddress, peering.RefusedRoom, peering.RefusedHandshake},
		string(audit.Kube):    door.RefusedReasons(),
		string(audit.Kubelet): {virtualnode.RefusedHandshake, virtualnode.RefusedNobody, virtualnode.RefusedUser},
		string(audit.Socket):  {localapi.RefusedUser},
	}, d.log)
	d.parts = newParts(d.metrics, d.changed.Ring)
	d.local.Handle("GET /metrics", d.metrics.Handler())
	if d.cfg.MetricsAddress != "" {
		d.metricsAt, err = metrics.Listen(d.cfg.MetricsAddress, d.cfg.MetricsPublic)
	}
	return err
}

// newAudit makes the record of refusals.
func (d *Daemon) newAudit() *audit.Log {
	return audit.New(d.log, audit.Options{
		Named: func(id string) string {
			if d.directory == nil {
				return ""
			}
			return d.directory.peerName(id)
		},
		Count: func(door audit.Door, reason string) { d.metrics.Refused(string(door), reason) },
		Tell: func(peer, id, message string) {
			who := cmp.Or(peer, "a stranger, "+id)
			d.publish(api.Event{Type: api.EventSecurity, Severity: api.SeverityWarning, Peer: peer, Message: who + " was " + message})
		},
	})
}

// facts are what the metrics show.
func (d *Daemon) facts(ctx context.Context) metrics.Facts {
	b := backend{d}
	status, err := b.Status(ctx)
	f := metrics.Facts{
		EngineKind: string(status.Engine.Kind), EngineState: string(status.Engine.State),
		Contacts: map[string]int{}, Problems: map[string]int{}, Reconciles: reconciles(),
	}
	for _, p := range status.Problems {
		f.Problems[string(p.Severity)]++
	}
	for _, c := range d.contacts.Snapshot() {
		f.Contacts[string(c.State)]++
	}
	if d.gateway != nil {
		f.Drops = d.gateway.Drops()
	}
	c := d.cluster.Load()
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
	d.peerFacts(&f, b, seen)
	c.guestFacts(ctx, &f)
	return f
}

// peerFacts adds the Peers; what is merely nearby is only counted.
func (d *Daemon) peerFacts(f *metrics.Facts, b backend, seen facts) {
	var tunnels map[string]gateway.Stats
	if d.gateway != nil {
		tunnels = d.gateway.StatsAll()
	}
	for _, k := range d.directory.all() {
		if k.peer == nil {
			continue
		}
		view := b.view(k, seen)
		p := metrics.Peer{
			Name: k.name, Outgoing: string(view.Outgoing), Incoming: string(view.Incoming), Reachable: k.contact.Reachable,
			RTT: k.rtt, Clock: k.clock, PodsAbroad: view.Pods.Abroad,
		}
		if k.peer.Status.Outgoing.State == v1alpha1.StateRequested {
			f.RequestsOut++
		}
		for _, ctr := range seen.contracts {
			if ctr.Spec.Peer == k.name && ctr.Spec.Role == v1alpha1.RoleConsumer {
				p.Granted, p.Used = floats(quantities(ctr.Spec.Resources)), floats(view.Used)
			}
		}
		if t, ok := tunnels[k.id.String()]; ok {
			p.Tunnel = &metrics.Tunnel{Up: t.Up, LastHandshake: t.LastHandshake, Received: t.Received, Sent: t.Sent, MTU: t.MTU}
		}
		f.Peers = append(f.Peers, p)
	}
}

func (c *clusterPart) guestFacts(ctx context.Context, f *metrics.Facts) {
	guests, err := c.host.Guests(ctx)
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

// countAnswers counts the requests that are answered, by whomever.
func (d *Daemon) countAnswers(ctx context.Context, mgr manager.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.PeeringRequest{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	answer := func(obj any) v1alpha1.Answer {
		r, ok := obj.(*v1alpha1.PeeringRequest)
		if !ok || r.Status.Answer == v1alpha1.AnswerPending {
			return ""
		}
		return r.Status.Answer
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, first bool) {
			if a := answer(obj); a != "" && !first {
				d.metrics.RequestAnswered(strings.ToLower(string(a)))
			}
		},
		UpdateFunc: func(was, is any) {
			if a := answer(is); a != "" && answer(was) == "" {
				d.metrics.RequestAnswered(strings.ToLower(string(a)))
			}
		},
	})
	return err
}
