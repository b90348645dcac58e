package metrics

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"

	"kith.dev/core/api"
	"kith.dev/core/base/version"
)

const (
	gatherTimeout = 5 * time.Second
	// maxResources bounds the label `resource`: what a peer's contract names is the peer's word.
	maxResources = 16
)

// The words of labels that are always there, at zero too, so that an alert can be written before the first event.
var (
	engineStates = []api.EngineState{api.EngineStarting, api.EngineReady, api.EngineDegraded, api.EngineStopped, api.EngineFailed, api.EngineAsleep}
	states       = []api.State{
		api.StateNone, api.StateRequested, api.StateDeclined, api.StateExpired, api.StateContracted, api.StateConnected, api.StateUnreachable, api.StateEnding,
	}
	contacts   = []string{"dialling", "reachable", "unreachable", "mismatch", "version"}
	severities = []api.Severity{api.SeverityInfo, api.SeverityWarning, api.SeverityError}
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
	engine := f.Status.Engine
	for _, state := range engineStates {
		show("kith_engine_state", is(state == engine.State), string(engine.Kind), string(state))
	}
	show("kith_cluster_readable", is(f.Readable))
	problems := map[api.Severity]int{}
	for _, p := range f.Status.Problems {
		problems[p.Severity]++
	}
	for _, s := range severities {
		show("kith_problems", float64(problems[s]), string(s))
	}
	for _, s := range contacts {
		show("kith_contacts", float64(f.Contacts[s]), s)
	}
	for reason, n := range f.Drops {
		show("kith_gateway_dropped_packets_total", float64(n), reason)
	}
	if f.Readable {
		cluster(f, show)
		peers(f, show)
	}
}

type show func(name string, value float64, labels ...string)

func cluster(f Facts, show show) {
	contracts, guests, used := map[[2]string]int{}, map[[2]string]int{}, map[string]float64{}
	for _, c := range f.Contracts {
		contracts[[2]string{string(c.Role), string(c.State)}]++
		if c.Role == api.Provider {
			for name, n := range floats(c.Used) {
				used[name] += n
			}
		}
	}
	for labels, n := range contracts {
		show("kith_contracts", float64(n), labels[:]...)
	}
	for _, g := range f.Guests {
		guests[[2]string{g.Consumer, g.Phase}]++
	}
	for labels, n := range guests {
		show("kith_guests", float64(n), labels[:]...)
	}
	show("kith_requests_pending", float64(f.Status.Counts.Requests), "incoming")
	amounts(show, "kith_sharing_offered", floats(f.Status.Sharing.Amounts))
	amounts(show, "kith_sharing_promised", floats(f.Status.Sharing.Used))
	amounts(show, "kith_sharing_used", used)
}

func peers(f Facts, show show) {
	granted := map[string]api.Contract{}
	for _, c := range f.Contracts {
		if c.Role == api.Consumer {
			granted[c.Peer] = c
		}
	}
	outgoing, incoming := map[api.State]int{}, map[api.State]int{}
	for _, p := range f.Peers {
		outgoing[p.Outgoing]++
		incoming[p.Incoming]++
		show("kith_peer_reachable", is(p.Reachable), p.Name)
		if p.Reachable {
			show("kith_peer_clock_offset_seconds", p.Clock.Seconds(), p.Name)
			if p.RTT > 0 {
				show("kith_peer_rtt_seconds", p.RTT.Seconds(), p.Name)
			}
		}
		show("kith_pods_abroad", float64(p.Pods.Abroad), p.Name)
		amounts(show, "kith_granted", floats(granted[p.Name].Resources), p.Name)
		amounts(show, "kith_granted_used", floats(granted[p.Name].Used), p.Name)
		if p.HasTunnel {
			tunnel(p, show)
		}
	}
	for _, state := range states {
		show("kith_peers", float64(outgoing[state]), "outgoing", string(state))
		show("kith_peers", float64(incoming[state]), "incoming", string(state))
	}
	show("kith_requests_pending", float64(outgoing[api.StateRequested]), "outgoing")
}

func tunnel(p Peer, show show) {
	show("kith_tunnel_up", is(p.Tunnel.Up), p.Name)
	if p.Tunnel.Way != "" {
		show("kith_tunnel_way", 1, p.Name, string(p.Tunnel.Way))
	}
	last := 0.0
	if t := p.Tunnel.LastHandshake; !t.IsZero() {
		last = float64(t.UnixMilli()) / 1000
	}
	show("kith_tunnel_last_handshake_seconds", last, p.Name)
	show("kith_tunnel_received_bytes_total", float64(p.Tunnel.RX), p.Name)
	show("kith_tunnel_sent_bytes_total", float64(p.Tunnel.TX), p.Name)
	show("kith_tunnel_mtu_bytes", float64(p.MTU), p.Name)
}

// floats reads amounts as cores, bytes or pieces.
func floats(r api.Resources) map[string]float64 {
	out := map[string]float64{}
	for name, text := range r {
		if q, err := resource.ParseQuantity(text); err == nil {
			out[name] = q.AsApproximateFloat64()
		}
	}
	return out
}

// amounts shows the first resources by name.
func amounts(show show, name string, all map[string]float64, labels ...string) {
	resources := slices.Sorted(maps.Keys(all))
	for _, r := range resources[:min(len(resources), maxResources)] {
		show(name, all[r], append(slices.Clip(labels), r)...)
	}
}

func is(true bool) float64 {
	if true {
		return 1
	}
	return 0
}
