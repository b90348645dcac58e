package hosting

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
)

const kubeletSays = `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="web",namespace="shop-x",pod="web-1"} 1.5 1763709984123
container_cpu_usage_seconds_total{container="web",namespace="shop",pod="web-1"} 7 1763709984123
container_cpu_usage_seconds_total{container="db",namespace="other-twin",pod="db"} 9 1763709984123
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 1000 1763709984123
# TYPE resource_scrape_error gauge
resource_scrape_error 0
`

func TestAConsumerSeesTheUseOfItsOwnGuests(t *testing.T) {
	guests := map[types.NamespacedName]string{{Namespace: "shop-x", Name: "web-1"}: "shop", {Namespace: "shop-x", Name: "idle"}: "shop"}
	out, err := ownMetrics([][]byte{[]byte(kubeletSays), nil}, guests)
	if err != nil {
		t.Fatal(err)
	}
	want := `container_cpu_usage_seconds_total{container="web",namespace="shop",pod="web-1"} 1.5 1763709984123`
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 3 || lines[2] != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if _, err := ownMetrics([][]byte{[]byte("{}")}, guests); err == nil {
		t.Error("no metrics at all, and no error")
	}
}

func TestASummaryOfOwnGuestsOnly(t *testing.T) {
	says := `{"node":{"nodeName":"bob"},"pods":[
		{"podRef":{"name":"web-1","namespace":"shop-x","uid":"u1"},"cpu":{"usageNanoCores":5},"network":{"rxBytes":7}},
		{"podRef":{"name":"web-1","namespace":"shop","uid":"u2"},"cpu":{"usageNanoCores":9}},
		{"podRef":7}]}`
	out, err := ownSummary([][]byte{[]byte(says)}, map[types.NamespacedName]string{{Namespace: "shop-x", Name: "web-1"}: "shop"})
	want := `{"pods":[{"cpu":{"usageNanoCores":5},"network":{"rxBytes":7},"podRef":{"name":"web-1","namespace":"shop"}}]}`
	if err != nil || string(out) != want {
		t.Errorf("got %s (%v)", out, err)
	}
}

func TestWhatGuestsUseIsAddedUp(t *testing.T) {
	says := `{"node":{"nodeName":"bob"},"pods":[
		{"podRef":{"name":"web-1","namespace":"shop-x","uid":"u1"},"containers":[{"cpu":{"usageNanoCores":5000000},"memory":{"workingSetBytes":1024}},{"cpu":{"usageNanoCores":1000000}}]},
		{"podRef":{"name":"web-1","namespace":"shop","uid":"u2"},"containers":[{"cpu":{"usageNanoCores":9000000}}]}]}`
	web := types.NamespacedName{Namespace: "shop-x", Name: "web-1"}
	all, err := uses([][]byte{nil, []byte(says)}, map[types.NamespacedName]bool{web: true})
	cpu, memory := all[web][corev1.ResourceCPU], all[web][corev1.ResourceMemory]
	if err != nil || len(all) != 1 || cpu.String() != "6m" || memory.String() != "1Ki" {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := uses([][]byte{[]byte("no JSON")}, nil); err == nil {
		t.Error("what is no JSON was read")
	}
}

func TestWhatOneConsumerUsesIsPickedOutSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &usage{answers: cache.NewExpiring()}
		made := 0
		pick := func(context.Context) ([]byte, error) { made++; return []byte("use"), nil }
		for range 1000 { // for 20 s
			if body, err := u.serve(t.Context(), "guests of a/stats/summary", pick); err != nil || string(body) != "use" {
				t.Fatal(string(body), err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if made != 4 {
			t.Errorf("made %d times in 20 s", made)
		}
		no := errors.New("no kubelet answers")
		if _, err := u.serve(t.Context(), "guests of b/stats/summary", func(context.Context) ([]byte, error) { return nil, no }); !errors.Is(err, no) {
			t.Error(err)
		}
		if body, err := u.serve(t.Context(), "guests of b/stats/summary", pick); err != nil || string(body) != "use" {
			t.Error("a failure is kept:", err)
		}
	})
}
