//go:build lab

package e2e

import (
	"os"
	"regexp"
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
				return out
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
			return out
		}
		return ""
	})
	if out, err := alice.Kubectl(t.Context(), "--as=nobody", "top", "pod", "-n", "shop"); err == nil || !strings.Contains(out+err.Error(), "forbidden") {
		t.Errorf("whoever may not read metrics gets %s, %v", out, err)
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
