package remote

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Use is what is read of what a kubelet tells of a container under stats/summary. The names are those of the kubelet's stats/v1alpha1.
type Use struct {
	CPU struct {
		Time                 metav1.Time `json:"time"`
		UsageNanoCores       uint64      `json:"usageNanoCores"`
		UsageCoreNanoSeconds uint64      `json:"usageCoreNanoSeconds"`
	} `json:"cpu"`
	Memory struct {
		Time            metav1.Time `json:"time"`
		WorkingSetBytes uint64      `json:"workingSetBytes"`
		UsageBytes      uint64      `json:"usageBytes"`
		RSSBytes        uint64      `json:"rssBytes"`
	} `json:"memory"`
}

// Amounts are the processors and the memory that containers use together; of processors it is whole thousandths, rounded up as kubectl top
// does.
func Amounts(containers []Use) corev1.ResourceList {
	var cpu, memory uint64
	for i := range containers {
		cpu = plus(cpu, containers[i].CPU.UsageNanoCores)
		memory = plus(memory, containers[i].Memory.WorkingSetBytes)
	}
	const milli = 1_000_000
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(plus(cpu, milli-1)/milli), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(memory), resource.BinarySI),
	}
}

// plus does not wrap: it is a peer that says these numbers.
func plus(a, b uint64) uint64 {
	if b > math.MaxInt64-min(a, math.MaxInt64) {
		return math.MaxInt64
	}
	return a + b
}
