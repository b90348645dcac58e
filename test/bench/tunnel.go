package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tunnel lets one pod at alice talk to a pod abroad, and by turns to the same programs at bob without the tunnel: there
// they are on bob's LAN address, a way that differs from the first by the gateways alone.
func tunnel(ctx context.Context, r *rig) error {
	away, err := r.pairOfPods(ctx)
	if err != nil {
		return err
	}
	defer r.removePods(ctx)
	plain := pod("plain", "", container("echo", "kith.dev/echo:1"), load())
	plain.Spec.HostNetwork = true
	if err := r.start(ctx, r.bob, "plain", plain); err != nil {
		return err
	}
	defer r.remove(ctx, r.bob, "plain", plain.Name)
	address, err := r.bob.Address()
	if err != nil {
		return err
	}
	ways := []string{away, address.String()}
	for i := range max(1, r.rounds/2) {
		var speed, p50, p99 [2]float64
		for k := range ways {
			at := (i + k) % 2
			var s struct {
				MBits  float64 `json:"mbitPerSecond"`
				Bytes  float64
				Broken string
			}
			before, err := r.kithdSeconds()
			if err != nil {
				return err
			}
			if err := r.load(ctx, &s, "blast", "-duration", "4s", ways[at]+":7000"); err != nil || s.Broken != "" {
				return fmt.Errorf("send to %s: %s %w", ways[at], s.Broken, err)
			}
			speed[at] = s.MBits
			after, err := r.kithdSeconds()
			if err != nil {
				return err
			}
			if at == 0 {
				r.report.Add("CPU time of both kithd for a gigabyte through the tunnel", "s", (after-before)/s.Bytes*1e9)
			}
			var h struct {
				P50    float64 `json:"p50ms"`
				P99    float64 `json:"p99ms"`
				Errors int
			}
			if err := r.load(ctx, &h, "http", "-rate", "100", "-duration", "3s", "http://"+ways[at]+":8080/"); err != nil || h.Errors > 0 {
				return fmt.Errorf("ask %s: %d errors %w", ways[at], h.Errors, err)
			}
			p50[at], p99[at] = h.P50, h.P99
		}
		r.report.Pair("TCP, pod to pod", "Mbit/s", "tunnel", speed[0], "plain", speed[1])
		r.report.Pair("HTTP request, median of 300", "ms", "tunnel", p50[0], "plain", p50[1])
		r.report.Pair("HTTP request, 99th percentile of 300", "ms", "tunnel", p99[0], "plain", p99[1])
	}
	after, err := r.usage()
	for _, p := range programs[:2] {
		r.report.Add("memory after that, "+p.role+": kithd", "MB", after[p].rss)
	}
	return err
}

// kithdSeconds is the CPU time that both kithd have used so far.
func (r *rig) kithdSeconds() (float64, error) {
	u, err := r.usage()
	return u[program{"consumer", "kithd"}].cpu + u[program{"provider", "kithd"}].cpu, err
}

// load runs the load program in the pod at home.
func (r *rig) load(ctx context.Context, report any, args ...string) error {
	out, err := r.alice.Kubectl(ctx, append([]string{"-n", namespace, "exec", "home", "-c", "load", "--", "/app"}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), report)
}

// pairOfPods starts a pod at home and one abroad, and gives the address of the latter.
func (r *rig) pairOfPods(ctx context.Context) (away string, err error) {
	for name, node := range map[string]string{"home": "alice", "away": abroad} {
		p := pod(name, node, container("echo", "kith.dev/echo:1"), load())
		if err := r.start(ctx, r.alice, namespace, p); err != nil {
			return "", err
		}
	}
	p, err := r.alice.kube.CoreV1().Pods(namespace).Get(ctx, "away", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return p.Status.PodIP, nil
}

func (r *rig) removePods(ctx context.Context) {
	r.remove(ctx, r.alice, namespace, "home")
	r.remove(ctx, r.alice, namespace, "away")
}

func (r *rig) start(ctx context.Context, at *node, namespace string, p *corev1.Pod) error {
	if _, err := at.kube.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := until(ctx, "pod "+p.Name+" Ready", func() bool {
		now, err := at.kube.CoreV1().Pods(namespace).Get(ctx, p.Name, metav1.GetOptions{})
		return err == nil && isReady(now)
	})
	return err
}

func (r *rig) remove(ctx context.Context, at *node, namespace, name string) {
	_ = at.kube.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	_, _ = until(ctx, "pod "+name+" gone", func() bool {
		_, err := at.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err != nil
	})
}

// gatewayAlone runs the gateway's own benchmark: three hosts with a gateway each, and ways between the same two namespaces by turns, through
// the gateway and through a plain wireguard-go; and from a guest to a guest of another provider, by way of home, and to home itself.
func gatewayAlone(ctx context.Context, r *rig) error {
	c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkTunnel$", "-benchtime", "1x", "-count", fmt.Sprint(r.rounds), "./core/net/gateway")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false") // as everything is built
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		r.gatewayLine(line)
	}
	return nil
}

// gatewayLine reads a line of a benchmark: its name, and pairs of a value and its unit.
func (r *rig) gatewayLine(line string) {
	f := strings.Fields(line)
	if len(f) == 0 {
		return
	}
	_, part, _ := strings.Cut(f[0], "/")
	values := map[string]float64{}
	for i := 1; i < len(f); i++ {
		if v, err := strconv.ParseFloat(f[i-1], 64); err == nil {
			values[strings.TrimSuffix(f[i], "-Mbit/s")] = v
		}
	}
	for prefix, what := range map[string]string{
		"one-stream": "gateway alone, TCP, one stream", "eight-streams": "gateway alone, TCP, eight streams", "UDP": "gateway alone, UDP",
	} {
		if strings.HasPrefix(part, prefix) && values["wireguard-go"] > 0 {
			r.report.Pair(what, "Mbit/s", "gateway", values["gateway"], "wireguard-go", values["wireguard-go"])
		}
	}
	if values["direct"] > 0 {
		r.report.Pair("gateway alone, guest to guest of another provider", "Mbit/s", "by home", values["by-home"], "to home", values["direct"])
	}
}
