package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

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
			r.report.pair(what, "Mbit/s", "gateway", values["gateway"], "wireguard-go", values["wireguard-go"])
		}
	}
	if values["direct"] > 0 {
		r.report.pair("gateway alone, guest to guest of another provider", "Mbit/s", "by home", values["by-home"], "to home", values["direct"])
	}
}
