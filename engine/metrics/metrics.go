// Package metrics serves the resource metrics API (metrics.k8s.io, KEP-117) that kubectl top and horizontal pod autoscalers
// ask: what pods and nodes use of CPU and memory. The API server's component installs it into its own chain of handlers, so
// it has no port, certificate or pod of its own, and the API server's authentication and authorization are its own.
//
// It knows nothing by itself and keeps nothing: who asks has the kubelets asked (stats/summary) of just those nodes that the
// answer is about, virtual ones like others, and their answers hold for some seconds. So nothing is scraped while nobody asks,
// and a node abroad is asked only about what runs there. A metrics-server of upstream's scrapes all nodes all the time,
// because it also serves clusters with thousands; it can be installed in the place of this one (Objects).
package metrics

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
)

const (
	// fresh is how long an answer of a kubelet holds. Kubelets look at containers every ten to fifteen seconds, an autoscaler
	// asks every fifteen.
	fresh = 10 * time.Second
	// patience with one node. kubectl top shows the others then.
	patience = 5 * time.Second
	// window is the time over which a kubelet's rate of CPU was measured: it looks at containers every ten seconds, at quiet ones
	// every fifteen, and does not say which.
	window = 15 * time.Second
)

// A Kubelet answers with the JSON of its stats/summary.
type Kubelet func(ctx context.Context, node string) ([]byte, error)

// Server answers the API's questions.
type Server struct {
	ask   Kubelet
	pods  corelisters.PodLister
	nodes corelisters.NodeLister
	log   *slog.Logger

	mu       sync.Mutex
	readings map[string]*reading // by node
}

// reading is what a kubelet said, or is being asked for.
type reading struct {
	done chan struct{} // closed when it is known
	at   time.Time     // when it was asked
	node use
	pods map[types.UID]map[string]use // by the container's name
}

// use is what a container or a node uses: CPU in billionths of a core, the working set in bytes, and when that was measured.
// A zero time says that it is not known.
type use struct {
	at          time.Time
	cpu, memory uint64
}

// New makes a server that has kubelets asked by ask. Its listers must be filled before the API server is ready.
func New(ask Kubelet, pods corelisters.PodLister, nodes corelisters.NodeLister, log *slog.Logger) *Server {
	return &Server{ask: ask, pods: pods, nodes: nodes, log: log, readings: map[string]*reading{}}
}

// read asks the kubelets of these nodes, all at once and each once, however many want to know. A node that does not answer in
// time has an empty reading.
func (s *Server) read(ctx context.Context, nodes []string) map[string]*reading {
	s.mu.Lock()
	s.forget(time.Now())
	found := map[string]*reading{}
	for _, name := range nodes {
		r := s.readings[name]
		if r == nil {
			r = &reading{done: make(chan struct{}), at: time.Now()}
			s.readings[name] = r
			go s.fill(context.WithoutCancel(ctx), name, r) // others may wait for it
		}
		found[name] = r
	}
	s.mu.Unlock()
	for _, r := range found {
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil
		}
	}
	return found
}

// forget drops what holds no longer. Callers hold mu.
func (s *Server) forget(now time.Time) {
	for name, r := range s.readings {
		select {
		case <-r.done:
			if now.Sub(r.at) >= fresh {
				delete(s.readings, name)
			}
		default: // being asked
		}
	}
}

func (s *Server) fill(ctx context.Context, node string, r *reading) {
	defer close(r.done)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := s.ask(ctx, node)
	if err == nil {
		r.node, r.pods, err = parse(body)
	}
	if err != nil {
		s.log.Debug("what a node uses is not known", "node", node, "err", err)
	}
}

// usable reports whether a pod can use anything: it has a node and runs.
func usable(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodRunning
}

// summary is what is read of a kubelet's stats/summary; k8s.io/kubelet/pkg/apis/stats/v1alpha1 has all of it. What a kubelet
// does not know it leaves out: the rate of CPU of a container that was looked at once only.
type summary struct {
	Node struct{ CPU, Memory *amount }
	Pods []struct {
		PodRef     struct{ UID types.UID }
		Containers []struct {
			Name        string
			CPU, Memory *amount
		}
	}
}

// amount is CPU or memory.
type amount struct {
	Time            time.Time
	UsageNanoCores  *uint64
	WorkingSetBytes *uint64
}

// parse reads a summary. Containers of which not both are known are left out.
func parse(body []byte) (node use, pods map[types.UID]map[string]use, err error) {
	var s summary
	if err := json.Unmarshal(body, &s); err != nil {
		return node, nil, fmt.Errorf("read the kubelet's summary: %w", err)
	}
	node, _ = useOf(s.Node.CPU, s.Node.Memory)
	pods = make(map[types.UID]map[string]use, len(s.Pods))
	for _, p := range s.Pods {
		containers := make(map[string]use, len(p.Containers))
		for _, c := range p.Containers {
			if u, ok := useOf(c.CPU, c.Memory); ok {
				containers[c.Name] = u
			}
		}
		pods[p.PodRef.UID] = containers
	}
	return node, pods, nil
}

func useOf(cpu, memory *amount) (use, bool) {
	if cpu == nil || memory == nil || cpu.UsageNanoCores == nil || memory.WorkingSetBytes == nil || cpu.Time.IsZero() {
		return use{}, false
	}
	return use{at: cpu.Time, cpu: *cpu.UsageNanoCores, memory: *memory.WorkingSetBytes}, true
}
