package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// nodeWith is a node with these home pods in namespace shop, whose peer says what it is given.
func nodeWith(t *testing.T, says string, pods ...string) *Node {
	t.Helper()
	here := map[[2]string]*corev1.Pod{}
	for _, name := range pods {
		here[[2]string{"shop", name}] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-home"}}
	}
	return &Node{
		Name: "kith-bob", Peer: "bob", Usage: func(context.Context, string) ([]byte, error) { return []byte(says), nil }, Log: slog.New(slog.DiscardHandler),
		Pod: func(namespace, name string) *corev1.Pod { return here[[2]string{namespace, name}] },
	}
}

const peerSays = `# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="web",namespace="shop",pod="web-1"} 1.5 1763709984123
container_cpu_usage_seconds_total{container="web",namespace="shop",pod="made-up"} 99 1763709984123
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="web",namespace="shop",pod="web-1"} 1024 1763709984123
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 77 1763709984123
# TYPE apiserver_request_total counter
apiserver_request_total{namespace="shop",pod="web-1"} 5
`

func TestMetricsOfTheNodeAreThoseOfItsPods(t *testing.T) {
	n := nodeWith(t, peerSays, "web-1")
	out, _, err := n.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	want := []string{
		`container_cpu_usage_seconds_total{container="web",namespace="shop",pod="web-1"} 1.5 1763709984123`,
		`container_memory_working_set_bytes{container="web",namespace="shop",pod="web-1"} 1024 1763709984123`,
		`node_cpu_usage_seconds_total 1.5 1763709984123`,
		`node_memory_working_set_bytes 1024 1763709984123`,
		`resource_scrape_error 0`,
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	for _, bad := range []string{"container_cpu_usage_seconds_total{", "\x00\x01", `x{a="b"} y`} {
		if _, _, err := nodeWith(t, bad, "web-1").metrics(t.Context()); err == nil {
			t.Errorf("%q was taken for metrics", bad)
		}
	}
}

func TestTheNodesCounterNeverFalls(t *testing.T) {
	family := func(values map[string]float64) *dto.MetricFamily {
		f := &dto.MetricFamily{}
		for pod, v := range values {
			name := "pod"
			f.Metric = append(f.Metric, &dto.Metric{Label: []*dto.LabelPair{{Name: &name, Value: &pod}}, Counter: &dto.Counter{Value: &v}})
		}
		return f
	}
	var c cpuCount
	for i, step := range []struct {
		pods map[string]float64
		want float64
	}{
		{map[string]float64{"a": 10, "b": 5}, 15},
		{map[string]float64{"a": 11, "b": 5}, 16},
		{map[string]float64{"a": 11}, 16},        // b left
		{map[string]float64{"a": 1, "c": 2}, 19}, // a was started anew, c came
		{nil, 19},
	} {
		if got, _ := c.add(family(step.pods)); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}

func TestASummaryNamesHomePods(t *testing.T) {
	n := nodeWith(t, `{"pods":[
		{"podRef":{"name":"web-1","namespace":"shop","uid":"guest"},"containers":[
			{"name":"a","cpu":{"time":"2026-01-02T03:04:05Z","usageNanoCores":2,"usageCoreNanoSeconds":50},"memory":{"workingSetBytes":3,"rssBytes":3}},
			{"name":"b","cpu":{"time":"2026-01-02T03:04:03Z","usageNanoCores":3,"usageCoreNanoSeconds":50},"memory":{"workingSetBytes":4,"rssBytes":3}}]},
		{"podRef":{"name":"made-up","namespace":"shop"},"containers":[{"memory":{"workingSetBytes":1000}}]}]}`, "web-1")
	out, _, err := n.summary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"nodeName":"kith-bob"`, `"usageNanoCores":5`, `"workingSetBytes":7`, `"uid":"uid-of-home"`, `"time":"2026-01-02T03:04:05Z"`, `"usageCoreNanoSeconds":100`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	uses, err := n.Uses(t.Context())
	if web := uses[types.NamespacedName{Namespace: "shop", Name: "web-1"}]; err != nil || len(uses) != 1 || web.Cpu().MilliValue() != 1 || web.Memory().Value() != 7 {
		t.Errorf("uses: %v, %v", uses, err)
	}
	if strings.Contains(string(out), "made-up") || strings.Contains(string(out), "1000") {
		t.Errorf("a pod that is not here: %s", out)
	}
}

// TestUseIsToldToWhoMayReadIt: by a token that the API server knows and whose user may get nodes/metrics.
func TestUseIsToldToWhoMayReadIt(t *testing.T) {
	home := fake.NewClientset()
	home.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		switch review.Spec.Token {
		case "broken":
			return true, nil, errors.New("no answer")
		case "collector", "stranger":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: review.Spec.Token}}
		}
		return true, review, nil
	})
	home.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = review.Spec.User == "collector" && review.Spec.ResourceAttributes.Subresource == "metrics"
		return true, review, nil
	})
	a := newAccess(home)
	for token, wanted := range map[string]func(error) bool{
		"collector":                     func(err error) bool { return err == nil },
		"stranger":                      func(err error) bool { return err != nil && !errors.Is(err, errNobody) },
		"broken":                        func(err error) bool { return err != nil && !errors.Is(err, errNobody) },
		"made-up":                       func(err error) bool { return errors.Is(err, errNobody) },
		"":                              func(err error) bool { return errors.Is(err, errNobody) },
		strings.Repeat("x", maxToken+1): func(err error) bool { return errors.Is(err, errNobody) },
	} {
		r := httptest.NewRequest(http.MethodGet, "https://10.42.255.1:10260/metrics/resource", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		if err := a.checkUsage(r, "metrics", "kith-bob"); !wanted(err) {
			t.Errorf("token %.20q: %v", token, err)
		}
		if err := a.check(r, "kith-bob"); !errors.Is(err, errNobody) {
			t.Errorf("token %.20q opens the rest of the kubelet: %v", token, err)
		}
	}
}

// FuzzUseAsThePeerTellsIt: whatever a peer says, home hears of pods that are here, or an error.
func FuzzUseAsThePeerTellsIt(f *testing.F) {
	f.Add(peerSays)
	f.Add(`{"pods":[{"podRef":{"name":"web-1","namespace":"shop"},"containers":[{"cpu":{"time":"2026-01-02T03:04:05Z","usageNanoCores":5}}]}]}`)
	f.Add("container_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web-1\"} NaN\n")
	f.Fuzz(func(t *testing.T, says string) {
		n := nodeWith(t, says, "web-1")
		if out, _, err := n.metrics(t.Context()); err == nil {
			parser := expfmt.NewTextParser(model.LegacyValidation)
			families, err := parser.TextToMetricFamilies(bytes.NewReader(out))
			if err != nil {
				t.Fatalf("%q became %q: %v", says, out, err)
			}
			for name, family := range families {
				for _, m := range family.Metric {
					if !strings.HasPrefix(name, "node_") && name != "resource_scrape_error" && !n.ofOurs(m) {
						t.Errorf("%q became %q", says, out)
					}
				}
			}
		}
		if out, _, err := n.summary(t.Context()); err == nil && !json.Valid(out) {
			t.Errorf("%q became %q", says, out)
		}
	})
}
