package metrics

// Family is one metric of kithd's own. The process and Go collectors' stand beside them.
type Family struct {
	Name   string
	Type   string // gauge or counter
	Labels []string
	Help   string
}

// table is all metrics that begin with kith_. docs/metrics.md holds the same; a test sees to it.
var table = []Family{
	{"kith_build_info", "gauge", []string{"version", "commit", "go"}, "Always 1; the labels say what runs."},
	{"kith_engine_state", "gauge", []string{"kind", "state"}, "1 for the state the local Kubernetes is in, 0 for the others."},
	{"kith_cluster_readable", "gauge", nil, "1 when the objects of the local cluster could be read for this scrape; else what follows from them is missing."},
	{"kith_problems", "gauge", []string{"severity"}, "Problems that kith status shows now."},
	{"kith_component_failures_total", "counter", []string{"component"}, "Times a part of kithd failed and was started again."},
	{"kith_events_total", "counter", []string{"type", "severity"}, "Events published, as kith events shows them."},

	{"kith_contacts", "gauge", []string{"state"}, "Clusters that contact is kept with, peers or merely nearby, by whether they answer."},
	{"kith_peers", "gauge", []string{"direction", "state"}, "Peers by direction and state of the relation."},
	{"kith_peer_reachable", "gauge", []string{"peer"}, "1 when the peer's API answers."},
	{"kith_peer_rtt_seconds", "gauge", []string{"peer"}, "Round trip to the peer's API, smoothed by the kernel; missing while not reachable."},
	{"kith_peer_clock_offset_seconds", "gauge", []string{"peer"}, "How far the peer's clock is ahead of this one, to within a second; missing while not reachable."},

	{"kith_tunnel_up", "gauge", []string{"peer"}, "1 when WireGuard had a handshake with the peer in the last three minutes."},
	{"kith_tunnel_way", "gauge", []string{"peer", "way"}, "1 for the way by which the tunnel's packets go: direct, mapped (a port that a router maps), punched (through routers of both) or carried (over a connection, which a common peer may pass on); missing while it is down."},
	{"kith_tunnel_last_handshake_seconds", "gauge", []string{"peer"}, "Time of the last handshake, in seconds since 1970; 0 when there was none since kithd started."},
	{"kith_tunnel_received_bytes_total", "counter", []string{"peer"}, "Tunnel traffic received from the peer, with its overhead."},
	{"kith_tunnel_sent_bytes_total", "counter", []string{"peer"}, "Tunnel traffic sent to the peer, with its overhead."},
	{"kith_tunnel_mtu_bytes", "gauge", []string{"peer"}, "Largest packet that goes through the tunnel to the peer whole."},
	{"kith_gateway_dropped_packets_total", "counter", []string{"reason"}, "Packets that the gateway did not let through."},

	{"kith_contracts", "gauge", []string{"role", "state"}, "Contracts kept here, by this cluster's role and state."},
	{"kith_requests_pending", "gauge", []string{"direction"}, "Requests for resources that wait for an answer: incoming for this machine's owner, outgoing for a peer's."},
	{"kith_requests_answered_total", "counter", []string{"outcome"}, "Incoming requests answered: accepted, declined, expired."},
	{"kith_sharing_offered", "gauge", []string{"resource"}, "What the default policy offers in all, in cores, bytes or pieces."},
	{"kith_sharing_promised", "gauge", []string{"resource"}, "What contracts promise to peers of it."},
	{"kith_sharing_used", "gauge", []string{"resource"}, "What guests request of what is promised."},
	{"kith_granted", "gauge", []string{"peer", "resource"}, "What the peer's contract grants this cluster, in cores, bytes or pieces."},
	{"kith_granted_used", "gauge", []string{"peer", "resource"}, "What this cluster's pods at the peer request of it."},
	{"kith_pods_abroad", "gauge", []string{"peer"}, "Pods of this cluster on the peer's node."},
	{"kith_guests", "gauge", []string{"peer", "phase"}, "Pods of the peer here, those refused too."},

	{"kith_peer_api_requests_total", "counter", []string{"route", "code"}, "Requests to the peer API by route and HTTP status; streams count when they begin."},
	{"kith_refusals_total", "counter", []string{"door", "reason"}, "What was refused at the doors: peer-api, kube (this cluster's API server, for consumers), company (the same, for users of laptops that it runs), guests (their pods), kubelet (of virtual nodes), socket, front (the Kubernetes API for users of this laptop), page (what browsers of this laptop ask for)."},
	{"kith_reconciles_total", "counter", []string{"controller", "result"}, "Runs of Kith's controllers."},
	{"kith_reconcile_errors_total", "counter", []string{"controller"}, "Runs of Kith's controllers that failed and are tried again."},
}
