package remote

import (
	"encoding/json"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWhatContainersUseIsAddedUp(t *testing.T) {
	for text, want := range map[string]string{
		`[]`: "0 0",
		`[{"cpu":{"usageNanoCores":1},"memory":{"workingSetBytes":1024}}]`:                                                                     "1m 1Ki",
		`[{"cpu":{"usageNanoCores":250000000},"memory":{"workingSetBytes":1048576}},{"cpu":{"usageNanoCores":50000001},"memory":{}}]`:          "301m 1Mi",
		`[{"cpu":{"usageNanoCores":18446744073709551615},"memory":{"workingSetBytes":18446744073709551615}},{"memory":{"workingSetBytes":9}}]`: "9223372036854m 9223372036854775807",
	} {
		var containers []Use
		if err := json.Unmarshal([]byte(text), &containers); err != nil {
			t.Fatal(err)
		}
		sum := Amounts(containers)
		cpu, memory := sum[corev1.ResourceCPU], sum[corev1.ResourceMemory]
		if got := cpu.String() + " " + memory.String(); got != want || memory.Value() < 0 {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if plus(math.MaxUint64, 1) != math.MaxInt64 {
		t.Error("it wraps")
	}
}
