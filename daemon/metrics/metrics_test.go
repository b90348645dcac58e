package metrics

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"kith.dev/core/api"
	"kith.dev/core/trust/audit"
)

var update = flag.Bool("update", false, "write the table in docs/metrics.md anew")

const docs = "../../docs/metrics.md"

// everything has a value for each field.
func everything(context.Context) Facts {
	return Facts{
		Status: api.Status{
			Engine: api.Engine{Kind: "builtin", State: "ready"}, Counts: api.Counts{Requests: 1}, Problems: []api.Problem{{Severity: "warning"}},
			Sharing: api.Sharing{Amounts: api.Resources{"memory": "4Gi"}, Used: api.Resources{"memory": "1Gi"}},
		},
		Contacts: map[string]int{"reachable": 2}, Drops: map[string]uint64{"source": 7}, Readable: true,
		Peers: []Peer{{
			Peer: api.Peer{
				Name: "bob", Outgoing: "connected", Incoming: "none", Reachable: true, Pods: api.PeerPods{Abroad: 2},
				Tunnel: api.Tunnel{Up: true, LastHandshake: time.Unix(1700000000, 0), RX: 10, TX: 20, Way: api.TunnelPunched},
			},
			RTT: 2 * time.Millisecond, Clock: -1500 * time.Millisecond, HasTunnel: true, MTU: 1420,
		}, {Peer: api.Peer{Name: "carol", Outgoing: "none", Incoming: "unreachable"}}},
		Contracts: []api.Contract{
			{Peer: "bob", Role: api.Consumer, State: "connected", Resources: api.Resources{"cpu": "500m"}, Used: api.Resources{"cpu": "20m"}},
			{Peer: "carol", Role: api.Provider, State: "unreachable", Used: api.Resources{"memory": "16Mi"}},
		},
		Guests: []api.Guest{{Consumer: "carol", Phase: "Running"}, {Consumer: "carol", Phase: "Running"}, {Consumer: "carol", Phase: "Running"}},
	}
}

// controllers is a registry such as controller-runtime's.
func controllers() *prometheus.Registry {
	r := prometheus.NewRegistry()
	runs := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "controller_runtime_reconcile_total"}, []string{"controller", "result"})
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "controller_runtime_reconcile_errors_total"}, []string{"controller"})
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "controller_runtime_other_total"})
	r.MustRegister(runs, failed, other)
	runs.WithLabelValues("kith-peers", "success").Add(9)
	failed.WithLabelValues("kith-peers").Add(4)
	return r
}

func scrape(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

func value(families map[string]*dto.MetricFamily, name string, labels ...string) string {
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetValue())
		}
		slices.Sort(have)
		slices.Sort(labels)
		if slices.Equal(have, labels) {
			return fmt.Sprint(m.GetGauge().GetValue() + m.GetCounter().GetValue())
		}
	}
	return "missing"
}

func counted() *Metrics {
	m := New(everything, controllers(), map[audit.Door][]audit.Reason{"kube": {"contract"}}, slog.New(slog.DiscardHandler))
	m.Failed("the gateway")
	m.Event("PeerSeen", "info")
	m.RequestAnswered("declined")
	m.Answered("GET /kith/v1/hello", 200)
	m.Answered("", 429)
	m.Refused("peer-api", "handshake")
	m.Refused("kube", "contract")
	return m
}

func TestScrapeShowsTheFacts(t *testing.T) {
	families := scrape(t, counted())
	for _, tc := range []struct {
		want, name string
		labels     []string
	}{
		{"1", "kith_engine_state", []string{"builtin", "ready"}},
		{"0", "kith_engine_state", []string{"builtin", "failed"}},
		{"1", "kith_problems", []string{"warning"}},
		{"0", "kith_problems", []string{"error"}},
		{"2", "kith_contacts", []string{"reachable"}},
		{"1", "kith_peers", []string{"outgoing", "connected"}},
		{"1", "kith_peers", []string{"incoming", "unreachable"}},
		{"0", "kith_peers", []string{"incoming", "ending"}},
		{"0.002", "kith_peer_rtt_seconds", []string{"bob"}},
		{"-1.5", "kith_peer_clock_offset_seconds", []string{"bob"}},
		{"missing", "kith_peer_rtt_seconds", []string{"carol"}},
		{"1.7e+09", "kith_tunnel_last_handshake_seconds", []string{"bob"}},
		{"20", "kith_tunnel_sent_bytes_total", []string{"bob"}},
		{"missing", "kith_tunnel_up", []string{"carol"}},
		{"1", "kith_tunnel_way", []string{"bob", "punched"}},
		{"missing", "kith_tunnel_way", []string{"bob", "direct"}},
		{"0.02", "kith_granted_used", []string{"bob", "cpu"}},
		{"3", "kith_guests", []string{"carol", "Running"}},
		{"7", "kith_gateway_dropped_packets_total", []string{"source"}},
		{"1", "kith_peer_api_requests_total", []string{"none", "429"}},
		{"0", "kith_requests_answered_total", []string{"expired"}},
		{"4", "kith_reconcile_errors_total", []string{"kith-peers"}},
		{"9", "kith_reconciles_total", []string{"kith-peers", "success"}},
		{"1", "kith_contracts", []string{"provider", "unreachable"}},
		{"1.6777216e+07", "kith_sharing_used", []string{"memory"}},
		{"4.294967296e+09", "kith_sharing_offered", []string{"memory"}},
	} {
		if got := value(families, tc.name, tc.labels...); got != tc.want {
			t.Errorf("%s%v is %s, want %s", tc.name, tc.labels, got, tc.want)
		}
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestWithoutAClusterTheRestIsShown(t *testing.T) {
	m := New(func(context.Context) Facts {
		return Facts{Status: api.Status{Engine: api.Engine{Kind: "builtin", State: "starting"}}}
	}, controllers(), nil, slog.New(slog.DiscardHandler))
	families := scrape(t, m)
	if got := value(families, "kith_cluster_readable"); got != "0" {
		t.Errorf("kith_cluster_readable is %s", got)
	}
	if families["kith_peers"] != nil || families["kith_engine_state"] == nil {
		t.Error("what is not known is shown, or the rest is not")
	}
}

func TestResourcesOfAPeerAreBounded(t *testing.T) {
	flood := api.Resources{}
	for i := range 1000 {
		flood[fmt.Sprintf("example.com/r%03d", i)] = "1"
	}
	m := New(func(context.Context) Facts {
		contract := api.Contract{Peer: "mallory", Role: api.Consumer, Resources: flood}
		return Facts{Readable: true, Peers: []Peer{{Peer: api.Peer{Name: "mallory"}}}, Contracts: []api.Contract{contract}}
	}, controllers(), nil, slog.New(slog.DiscardHandler))
	if n := len(scrape(t, m)["kith_granted"].GetMetric()); n != maxResources {
		t.Errorf("%d resources are shown, want %d", n, maxResources)
	}
}

// TestTableIsTheTruth holds the table, what is scraped and docs/metrics.md together.
func TestTableIsTheTruth(t *testing.T) {
	families := scrape(t, counted())
	for _, f := range table {
		got := families[f.Name]
		if got == nil {
			t.Errorf("%s is in the table and not scraped", f.Name)
			continue
		}
		if kind := strings.ToLower(got.GetType().String()); kind != f.Type || got.GetHelp() != f.Help {
			t.Errorf("%s is a %s with help %q", f.Name, kind, got.GetHelp())
		}
		var labels []string
		for _, l := range got.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if want := slices.Sorted(slices.Values(f.Labels)); !slices.Equal(labels, want) {
			t.Errorf("%s has labels %v, want %v", f.Name, labels, want)
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "kith_") && !slices.ContainsFunc(table, func(f Family) bool { return f.Name == name }) {
			t.Errorf("%s is scraped and not in the table", name)
		}
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- table -->\n", "<!-- /table -->"
	before, rest, _ := strings.Cut(string(text), begin)
	is, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %s", docs, strings.TrimSpace(begin))
	}
	var b strings.Builder
	b.WriteString("| metric | type | labels | what |\n|---|---|---|---|\n")
	for _, f := range table {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type, strings.Join(f.Labels, ", "), f.Help)
	}
	if is != b.String() {
		if !*update {
			t.Fatalf("%s is old: go test ./daemon/metrics -update", docs)
		}
		if err := os.WriteFile(docs, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListenRefusesOtherMachines(t *testing.T) {
	for address, says := range map[string]string{"0.0.0.0:0": "other machines", "[::]:0": "other machines", "192.0.2.1:6452": "other machines", "localhost:1": "not an IP address"} {
		if l, err := Listen(address, false); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", address, err)
			if l != nil {
				l.Close()
			}
		}
	}
	l, err := Listen("0.0.0.0:0", true)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestServeAnswersAddressesAndStops(t *testing.T) {
	l, err := Listen("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- counted().Serve(ctx, l) }()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for host, want := range map[string]int{l.Addr().String(): 200, "localhost:" + port: 200, "[::1]:" + port: 200, "rebound.example.org": 403} {
		req, _ := http.NewRequest("GET", "http://"+l.Addr().String()+"/metrics", nil)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || want == 200 && !strings.Contains(string(b), "kith_build_info") {
			t.Errorf("Host %s: %d %.100s", host, resp.StatusCode, b)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
