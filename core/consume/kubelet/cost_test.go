package kubelet

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"kith.dev/core/trust/wire/wiretest"
)

// dense repeats a unit, as often as is taken, within size bytes.
func dense(size int, head, unit, tail string, taken func([]byte) error) []byte {
	for n := (size - len(head) - len(tail)) / len(unit); n > 0; n -= n/50 + 1 {
		pad := max(0, size-len(head)-len(tail)-n*len(unit)-2)
		text := []byte(strings.Replace(head, "PAD", strings.Repeat("x", pad), 1) + strings.Repeat(unit, n) + tail)
		if taken(text) == nil {
			return text
		}
	}
	return nil
}

func TestCost(t *testing.T) {
	wiretest.Row{
		What: "use of pods (summary)", From: "provider", Max: 8 << 20, Type: reflect.TypeFor[statistics](),
		Taken: func(text []byte) error { return summaryShape.Check(text, usageBound) },
		Decode: func(text []byte) {
			n := nodeWith(t, string(text), "web-1")
			_, _, _ = n.summary(t.Context())
		},
	}.Check(t)
	const most = 8 << 20
	var worst wiretest.Used
	for _, unit := range []string{
		"a 1\n", "a{b=\"c\"} 1\n", "a{} 1\n", "#\n", "\n", "# HELP a b\n", "# TYPE a counter\n",
		"container_cpu_usage_seconds_total{container=\"a\",namespace=\"shop\",pod=\"web-1\"} 1\n",
		"a{" + strings.TrimSuffix(strings.Repeat("b=\"\",", 100), ",") + "} 1\n", "a{b=\"" + strings.Repeat("\\n", 1000) + "\"} 1\n",
	} {
		for _, size := range []int{64 << 10, most} {
			text := dense(size, "# PAD\n", unit, "", checkMetrics)
			if text == nil {
				t.Errorf("%q: nothing is taken", unit)
				continue
			}
			n := nodeWith(t, "", "web-1")
			n.Usage = func(context.Context, string) ([]byte, error) { return text, nil }
			used := wiretest.Measure(func() { _, _, _ = n.metrics(t.Context()) })
			if over := used.Allocated - wiretest.Factor*int64(len(text)) - wiretest.Slack; over > 0 {
				t.Errorf("%.80q: %d bytes cost %d", unit, len(text), used.Allocated)
			}
			if used.Allocated > worst.Allocated {
				worst = used
			}
		}
	}
	t.Log(wiretest.Line("use of pods (metrics)", "provider", most, most, worst))
	many := fmt.Sprintf(`{"pods":[%s{}]}`, strings.Repeat(`{"podRef":{"name":"web-1","namespace":"shop"}},`, 300))
	if body, _, err := nodeWith(t, many, "web-1").summary(t.Context()); err != nil || strings.Count(string(body), "web-1") != 1 {
		t.Errorf("a pod that is told of 300 times: %.300s %v", body, err)
	}
}
