package metrics

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kith.dev/core/version"
)

const (
	gatherTimeout = 5 * time.Second
	// maxResources bounds the label `resource`: what a peer's contract names is the peer's word.
	maxResources = 16
)

// The words of labels that are always there, at zero too, so that an alert can be written before the first event.
var (
	engineStates = []string{"starting", "ready", "degraded", "stopped", "failed"}
	states       = []string{"none", "requested", "declined", "expired", "contracted", "connected", "unreachable", "ending"}
	contacts     = []string{"dialling", "reachable", "unreachable", "mismatch", "version"}
	severities   = []string{"info", "warning", "error"}
)

// collector makes metrics of facts.
type collector struct {
	gather func(context.Context) Facts
	descs  map[string]desc
}

type desc struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

func (c *collector) add(f Family) {
	kind := prometheus.GaugeValue
	if f.Type == "counter" {
		kind = prometheus.CounterValue
	}
	c.descs[f.Name] = desc{prometheus.NewDesc(f.Name, f.Help, f.Labels, nil), kind}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d.Desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gatherTimeout)
	defer cancel()
	f := c.gather(ctx)
	show := func(name string, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name].Desc, c.descs[name].kind, value, labels...)
	}
	show("kith_build_info", 1, version.Version, version.Commit, runtime.Version())
	for _, state := range engineStates {
		show("kith_engine_state", is(state == f.EngineState), f.EngineKind, state)
	}
	show("kith_cluster_readable", is(f.Readable))
	for _, s := range severities {
		show("kith_problems", float64(f.Problems[s]), s)
	}
	for _, s := range contacts {
		show("kith_contacts", float64(f.Contacts[s]), s)
	}
	for reason, n := range f.Drops {
		show("kith_gateway_dropped_packets_total", float64(n), reason)
	}
	for _, r := range f.Reconciles {
		show("kith_reconcile_errors_total", r.Errors, r.Controller)
		for result, n := range r.Results {
			show("kith_reconciles_total", n, r.Controller, result)
		}
	}
	if f.Readable {
		cluster(f, show)
	}
}

type show func(name string, value float64, labels ...string)

func cluster(f Facts, show show) {
	peers(f.Peers, show)
	for contract, n := range f.Contracts {
		show("kith_contracts", float64(n), contract.Role, contract.State)
	}
	show("kith_requests_pending", float64(f.RequestsIn), "incoming")
	show("kith_requests_pending", float64(f.RequestsOut), "outgoing")
	amounts(f.Offered, func(resource string, v float64) { show("kith_sharing_offered", v, resource) })
	amounts(f.Promised, func(resource string, v float64) { show("kith_sharing_promised", v, resource) })
	amounts(f.Used, func(resource string, v float64) { show("kith_sharing_used", v, resource) })
	for guest, n := range f.Guests {
		show("kith_guests", float64(n), guest.Peer, guest.Phase)
	}
}

func peers(list []Peer, show show) {
	outgoing, incoming := map[string]int{}, map[string]int{}
	for _, p := range list {
		outgoing[p.Outgoing]++
		incoming[p.Incoming]++
		show("kith_peer_reachable", is(p.Reachable), p.Name)
		if p.Reachable {
			show("kith_peer_clock_offset_seconds", p.Clock.Seconds(), p.Name)
			if p.RTT > 0 {
				show("kith_peer_rtt_seconds", p.RTT.Seconds(), p.Name)
			}
		}
		show("kith_pods_abroad", float64(p.PodsAbroad), p.Name)
		amounts(p.Granted, func(resource string, v float64) { show("kith_granted", v, p.Name, resource) })
		amounts(p.Used, func(resource string, v float64) { show("kith_granted_used", v, p.Name, resource) })
		if p.Tunnel != nil {
			tunnel(p.Name, *p.Tunnel, show)
		}
	}
	for _, state := range states {
		show("kith_peers", float64(outgoing[state]), "outgoing", state)
		show("kith_peers", float64(incoming[state]), "incoming", state)
	}
}

func tunnel(peer string, t Tunnel, show show) {
	show("kith_tunnel_up", is(t.Up), peer)
	last := 0.0
	if !t.LastHandshake.IsZero() {
		last = float64(t.LastHandshake.UnixMilli()) / 1000
	}
	show("kith_tunnel_last_handshake_seconds", last, peer)
	show("kith_tunnel_received_bytes_total", float64(t.Received), peer)
	show("kith_tunnel_sent_bytes_total", float64(t.Sent), peer)
	show("kith_tunnel_mtu_bytes", float64(t.MTU), peer)
}

// amounts gives the first resources by name.
func amounts(all Amounts, each func(resource string, value float64)) {
	names := slices.Sorted(maps.Keys(all))
	for _, name := range names[:min(len(names), maxResources)] {
		each(name, all[name])
	}
}

func is(true bool) float64 {
	if true {
		return 1
	}
	return 0
}
