package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kith.dev/core/consume/remote"
	"kith.dev/core/trust/wire"
)

// usageTimeout is less than a metrics-server waits.
const usageTimeout = 8 * time.Second

// tellUsage answers for the node whose port was asked, as a kubelet does of its pods.
func (k *Kubelet) tellUsage(what string, tell func(*Node, context.Context) (body []byte, kind string, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := k.nodeAt(r)
		if n == nil {
			http.Error(w, "the node of this port does not run", http.StatusNotFound)
			return
		}
		if err := k.access.checkUsage(r, what, n.Name); err != nil {
			k.refuse(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), usageTimeout)
		defer cancel()
		body, kind, err := tell(n, ctx)
		if err != nil {
			n.Log.Debug("what guests use is not known", "err", err)
			http.Error(w, fmt.Sprintf("%s does not tell what its guests use: %v", n.Peer, err), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(body) // the caller is gone when this fails
	}
}

// podMetrics are what a kubelet tells of containers and pods under metrics/resource (KEP-1206); a peer may say no other.
var podMetrics = []string{
	"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds",
	"container_swap_limit_bytes", "container_swap_usage_bytes",
	"pod_cpu_usage_seconds_total", "pod_memory_working_set_bytes", "pod_swap_usage_bytes",
}

// metrics are those of the guests whose pods are on this node, and of the node what they sum up to.
func (n *Node) metrics(ctx context.Context) ([]byte, string, error) {
	body, err := n.Usage(ctx, remote.UsageMetrics)
	if err != nil {
		return nil, "", err
	}
	if err := checkMetrics(body); err != nil {
		return nil, "", err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	maps.DeleteFunc(families, func(name string, family *dto.MetricFamily) bool {
		family.Metric = slices.DeleteFunc(family.Metric, func(m *dto.Metric) bool { return !n.ofOurs(m) })
		return len(family.Metric) == 0 || !slices.Contains(podMetrics, name)
	})
	cpu, cpuAt := n.spent.add(families["container_cpu_usage_seconds_total"])
	memory, memoryAt := sum(families["container_memory_working_set_bytes"])
	families["node_cpu_usage_seconds_total"] = single("node_cpu_usage_seconds_total", "Cumulative cpu time of the pods on the node in core-seconds", dto.MetricType_COUNTER, cpu, cpuAt)
	families["node_memory_working_set_bytes"] = single("node_memory_working_set_bytes", "Current working set of the pods on the node in bytes", dto.MetricType_GAUGE, memory, memoryAt)
	families["resource_scrape_error"] = single("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", dto.MetricType_GAUGE, 0, 0)

	var out bytes.Buffer
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	encoder := expfmt.NewEncoder(&out, format)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if err := encoder.Encode(families[name]); err != nil {
			return nil, "", err
		}
	}
	return out.Bytes(), string(format), nil
}

// usageBound is how much may be made of what a peer tells. The statistics of a pod are looked at in pieces, which takes
// half as much again.
var usageBound = wire.Bound{Factor: 8, Slack: 256 << 10}

// statistics is what a kubelet tells under stats/summary, as far as it is read.
type statistics struct {
	Pods []map[string]json.RawMessage `json:"pods"`
}

type podRef struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	UID       types.UID `json:"uid"`
}

var (
	summaryShape    = (&wire.Types{Fold: true}).Of(reflect.TypeFor[statistics]())
	containersShape = (&wire.Types{Fold: true}).Of(reflect.TypeFor[[]remote.Use]())
)

// What the parser of metrics takes for each line, and for each label, at most.
const (
	perLine  = 1200
	perLabel = 200
)

// checkMetrics refuses a text in Prometheus' format of which too much would be made.
func checkMetrics(text []byte) error {
	cost := perLine*int64(bytes.Count(text, []byte("\n"))) + perLabel*int64(bytes.Count(text, []byte("=")))
	if most := 12*int64(len(text)) + usageBound.Slack; cost > most {
		return fmt.Errorf("metrics: to read %d bytes with so many lines and labels would take %d, at most %d are allowed", len(text), cost, most)
	}
	return nil
}

// ofOurs: is the metric one of a pod that home has on this node?
func (n *Node) ofOurs(m *dto.Metric) bool {
	namespace, pod := label(m, "namespace"), label(m, "pod")
	return namespace != "" && n.Pod(namespace, pod) != nil && !math.IsNaN(number(m))
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func number(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.Untyped.GetValue()
}

// sum adds a family up; the time is that of its youngest metric, in milliseconds since 1970.
func sum(family *dto.MetricFamily) (total float64, at int64) {
	for _, m := range family.GetMetric() {
		total += number(m)
		at = max(at, m.GetTimestampMs())
	}
	return total, at
}

func single(name, help string, kind dto.MetricType, value float64, at int64) *dto.MetricFamily {
	m := &dto.Metric{}
	if kind == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &value}
	} else {
		m.Gauge = &dto.Gauge{Value: &value}
	}
	if at != 0 {
		m.TimestampMs = &at
	}
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{m}}
}

// cpuCount makes one counter of those of containers, which come and go: it never falls.
type cpuCount struct {
	mu    sync.Mutex
	last  map[string]float64 // by container
	total float64
	at    int64
}

func (c *cpuCount) add(family *dto.MetricFamily) (seconds float64, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := map[string]float64{}
	for _, m := range family.GetMetric() {
		id := strings.Join([]string{label(m, "namespace"), label(m, "pod"), label(m, "container")}, "/")
		value := number(m)
		grown := value - c.last[id]
		if grown < 0 { // it was started anew
			grown = value
		}
		c.total += grown
		now[id] = value
		c.at = max(c.at, m.GetTimestampMs())
	}
	c.last = now
	return c.total, c.at
}

// summary is the kubelet's older form, of which other collectors read disk and network too.
func (n *Node) summary(ctx context.Context) ([]byte, string, error) {
	own := []map[string]json.RawMessage{}
	node := nodeStats{NodeName: n.Name}
	err := n.eachPod(ctx, func(home *corev1.Pod, pod map[string]json.RawMessage) {
		pod["podRef"], _ = json.Marshal(podRef{home.Name, home.Namespace, home.UID}) // three strings
		own = append(own, pod)
		node.count(containersOf(pod), home)
	})
	if err != nil {
		return nil, "", err
	}
	if node.CPU.Time.IsZero() {
		node.CPU.Time = metav1.Now()
	}
	node.Memory.Time = node.CPU.Time
	body, err := json.Marshal(map[string]any{"node": node, "pods": own})
	return body, "application/json", err
}

// Uses is what each of the pods on the node uses, by namespace and name at home, as far as the peer says.
func (n *Node) Uses(ctx context.Context) (map[types.NamespacedName]corev1.ResourceList, error) {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	all := map[types.NamespacedName]corev1.ResourceList{}
	err := n.eachPod(ctx, func(home *corev1.Pod, pod map[string]json.RawMessage) {
		all[types.NamespacedName{Namespace: home.Namespace, Name: home.Name}] = remote.Amounts(containersOf(pod))
	})
	return all, err
}

// eachPod has what the peer tells of each pod of the node looked at: of those that home has, and of none twice.
func (n *Node) eachPod(ctx context.Context, look func(home *corev1.Pod, told map[string]json.RawMessage)) error {
	body, err := n.Usage(ctx, remote.UsageSummary)
	if err != nil {
		return err
	}
	var told statistics
	if err := summaryShape.Check(body, usageBound); err != nil {
		return err
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return err
	}
	seen := map[types.UID]bool{}
	for _, pod := range told.Pods {
		home := n.Pod(wire.Text(pod["podRef"], "namespace"), wire.Text(pod["podRef"], "name"))
		if home != nil && !seen[home.UID] {
			seen[home.UID] = true
			look(home, pod)
		}
	}
	return nil
}

// containersOf are the statistics of a pod's containers; none when too much would be made of them.
func containersOf(pod map[string]json.RawMessage) (containers []remote.Use) {
	if containersShape.Check(pod["containers"], usageBound) != nil || json.Unmarshal(pod["containers"], &containers) != nil {
		return nil
	}
	return containers
}

// nodeStats is what is known of the node: the sum of its pods.
type nodeStats struct {
	NodeName  string      `json:"nodeName"`
	StartTime metav1.Time `json:"startTime"`
	remote.Use
}

// count adds the containers of a pod; what is said of pods as such is nothing on some nodes (cgroup v1).
func (s *nodeStats) count(containers []remote.Use, home *corev1.Pod) {
	if len(containers) == 0 {
		return
	}
	for i := range containers {
		c := &containers[i]
		s.CPU.UsageNanoCores += c.CPU.UsageNanoCores
		s.CPU.UsageCoreNanoSeconds += c.CPU.UsageCoreNanoSeconds
		s.Memory.WorkingSetBytes += c.Memory.WorkingSetBytes
		s.Memory.UsageBytes += c.Memory.UsageBytes
		s.Memory.RSSBytes += c.Memory.RSSBytes
		if s.CPU.Time.Before(&c.CPU.Time) {
			s.CPU.Time = c.CPU.Time
		}
	}
	if started := home.Status.StartTime; started != nil && (s.StartTime.IsZero() || started.Before(&s.StartTime)) {
		s.StartTime = *started
	}
}
