package metrics

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

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
