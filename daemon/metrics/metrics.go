package metrics

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"kith.dev/core/trust/audit"
)

// The metrics that are counted as things happen; the others are looked up with each scrape.
const (
	failures = "kith_component_failures_total"
	events   = "kith_events_total"
	answers  = "kith_requests_answered_total"
	requests = "kith_peer_api_requests_total"
	refusals = "kith_refusals_total"
)

// The metrics that controller-runtime counts, under its own names.
const (
	reconciles      = "kith_reconciles_total"
	reconcileErrors = "kith_reconcile_errors_total"
)

// Metrics are all metrics of one kithd. The methods that count may be called from many goroutines.
type Metrics struct {
	registry    *prometheus.Registry
	controllers prometheus.Gatherer
	counters    map[string]*prometheus.CounterVec
	log         *slog.Logger
}

// New makes them. gather is called with every scrape and must be back when its context ends, with what it has; controllers has what
// controller-runtime counts; refused are the doors and reasons that Refused will be called with.
func New(gather func(context.Context) Facts, controllers prometheus.Gatherer, refused map[audit.Door][]audit.Reason, log *slog.Logger) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), controllers: controllers, counters: map[string]*prometheus.CounterVec{}, log: log}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	asked := &collector{gather: gather, descs: map[string]desc{}}
	for _, f := range table {
		switch f.Name {
		case failures, events, answers, requests, refusals:
			m.counters[f.Name] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels)
			m.registry.MustRegister(m.counters[f.Name])
		case reconciles, reconcileErrors: // see Metrics.reconciles
		default:
			asked.add(f)
		}
	}
	m.registry.MustRegister(asked)
	// At zero they are there before the first event, so that alerts can be written.
	for _, outcome := range []string{"accepted", "declined", "expired"} {
		m.counters[answers].WithLabelValues(outcome)
	}
	for door, reasons := range refused {
		for _, reason := range reasons {
			m.counters[refusals].WithLabelValues(string(door), string(reason))
		}
	}
	return m
}

// Failed counts a part of kithd that ended by itself.
func (m *Metrics) Failed(component string) { m.counters[failures].WithLabelValues(component).Inc() }

// Event counts one that was published.
func (m *Metrics) Event(kind, severity string) {
	m.counters[events].WithLabelValues(kind, severity).Inc()
}

// RequestAnswered counts an incoming request: accepted, declined or expired.
func (m *Metrics) RequestAnswered(outcome string) { m.counters[answers].WithLabelValues(outcome).Inc() }

// Answered counts a request to the peer API. See peering.ServerConfig.
func (m *Metrics) Answered(route string, status int) {
	if route == "" || route == "/" {
		route = "none"
	}
	m.counters[requests].WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// Refused counts somebody who was not let in, or not heard, at a door.
func (m *Metrics) Refused(door audit.Door, reason audit.Reason) {
	m.counters[refusals].WithLabelValues(string(door), string(reason)).Inc()
}

// all is what is scraped.
func (m *Metrics) all() prometheus.Gatherer {
	return prometheus.Gatherers{m.registry, prometheus.GathererFunc(m.reconciles)}
}

// Write writes what a scrape would be answered. What cannot be gathered is left out, and is the error.
func (m *Metrics) Write(to io.Writer) error {
	families, err := m.all().Gather()
	for _, family := range families {
		if _, failed := expfmt.MetricFamilyToText(to, family); failed != nil {
			return failed
		}
	}
	return err
}

// Handler answers scrapes. What cannot be gathered is left out, and the rest is shown.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.all(), promhttp.HandlerOpts{
		ErrorLog: logger{m.log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: 2 * gatherTimeout,
	})
}

// reconciles are the runs of controllers.
func (m *Metrics) reconciles() (list []*dto.MetricFamily, err error) {
	families, err := m.controllers.Gather()
	for _, family := range families {
		name := map[string]string{
			"controller_runtime_reconcile_total": reconciles, "controller_runtime_reconcile_errors_total": reconcileErrors,
		}[family.GetName()]
		if i := slices.IndexFunc(table, func(f Family) bool { return f.Name == name }); i >= 0 {
			list = append(list, &dto.MetricFamily{Name: &name, Help: &table[i].Help, Type: family.Type, Metric: family.Metric})
		}
	}
	return list, err
}

type logger struct{ log *slog.Logger }

func (l logger) Println(v ...any) { l.log.Warn("metrics were not all shown", "err", v) }
