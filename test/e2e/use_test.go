//go:build lab

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// topAndAutoscalers: without anything installed, kubectl top shows pods and nodes, and an autoscaler knows its pods, wherever they run.
func topAndAutoscalers(t *testing.T, alice *lab.Laptop, home, away *pod) {
	shows := func(what string, args ...string) {
		t.Helper()
		var out string
		eventually(t, time.Minute, "kubectl top shows "+what, func() string {
			var err error
			out, err = alice.Kubectl(t.Context(), append([]string{"top"}, args...)...)
			if err != nil {
				return err.Error()
			}
			if !regexp.MustCompile(`(?m)^` + what + `\s+[0-9]+m\s.*\b[0-9]+Mi`).MatchString(out) {
				return instead(out)
			}
			return ""
		})
		t.Logf("kubectl top %s\n%s", strings.Join(args, " "), out)
	}
	shows(home.Metadata.Name, "pod", "-n", "shop")
	shows(away.Metadata.Name, "pod", "-n", "shop")
	shows("alice", "node")
	shows("kith-bob", "node")

	kubectl(t, alice, "-n", "shop", "autoscale", "deployment", "web", "--min=4", "--max=4", "--cpu=80%")
	defer kubectl(t, alice, "-n", "shop", "delete", "hpa", "web")
	eventually(t, 2*time.Minute, "the autoscaler knows what its pods use", func() string {
		out := kubectl(t, alice, "-n", "shop", "get", "hpa", "web", "-o",
			`jsonpath={.status.conditions[?(@.type=="ScalingActive")]}{" "}{.status.currentMetrics[*].resource.current.averageValue}`)
		if !strings.Contains(out, `"status":"True"`) || !regexp.MustCompile(`} [0-9]+m?$`).MatchString(out) {
			return instead(out)
		}
		return ""
	})
	if out, err := alice.Kubectl(t.Context(), "--as=nobody", "top", "pod", "-n", "shop"); err == nil || !strings.Contains(out+err.Error(), "forbidden") {
		t.Errorf("whoever may not read metrics gets %s, %v", out, err)
	}
}

// nobodyWaitsForItself: a Deployment comes as fast as the laptop is. With upstream's limits the controllers alone would wait for
// some seconds here, and for as many more as there are pods in twenties.
func nobodyWaitsForItself(t *testing.T, alice *lab.Laptop) {
	const many = 120
	kubectl(t, alice, "create", "namespace", "many")
	defer kubectl(t, alice, "delete", "namespace", "many", "--wait=false")
	apply(t, alice, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: many}
spec:
  replicas: %d
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec: {nodeSelector: {nobody: has}, containers: [{name: echo, image: "kith.dev/echo:1"}]}
`, many))
	took := eventually(t, time.Minute, "all pods are made", func() string {
		if n := len(pods(t, alice, "-n", "many")); n != many {
			return fmt.Sprint(n)
		}
		return ""
	})
	// The engine is one process, so this is about the clients of all its parts.
	var waited float64
	for line := range strings.Lines(kubectl(t, alice, "get", "--raw", "/metrics")) {
		if rest, ok := strings.CutPrefix(line, "rest_client_rate_limiter_duration_seconds_sum{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			seconds, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			waited += seconds
		}
	}
	t.Logf("%d pods made in %s, %.3f s waited for limits", many, took.Round(time.Millisecond), waited)
	if waited > 1 {
		t.Errorf("clients of the engine waited %.1f s for their own limits", waited)
	}
}

var stamped = regexp.MustCompile(`^time=(\S+) level=(\S+) msg=(.*)`)

// startsLogNoError: an owner who looks into the log sees no errors that are none.
func startsLogNoError(t *testing.T, l *lab.Lab) {
	const start = 30 * time.Second
	for _, p := range l.Laptops() {
		path, err := p.LogFile("k8s")
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		starts, began := 0, time.Time{}
		for line := range strings.Lines(string(text)) {
			part := stamped.FindStringSubmatch(line)
			if part == nil {
				continue
			}
			at, err := time.Parse(time.RFC3339Nano, part[1])
			if err != nil {
				t.Fatalf("%s: %s", p.Name(), line)
			}
			if strings.HasPrefix(part[3], "starting ") {
				starts, began = starts+1, at
			}
			if part[2] == "ERROR" && at.Sub(began) < start {
				t.Errorf("%s, start %d: %s", p.Name(), starts, line)
			}
		}
		if starts == 0 {
			t.Errorf("%s: no start in its log:\n%s", p.Name(), text)
		}
	}
}
