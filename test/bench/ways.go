package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// ways runs the gateway's benchmark of the ways of a tunnel, by turns: on a LAN, between two routers, and over a connection that a third laptop passes on.
func ways(ctx context.Context, r *rig) error {
	c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkWays$", "-benchtime", "1x", "-count", fmt.Sprint(r.rounds), "./core/net/gateway")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false") // as everything is built
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		r.wayLine(line)
	}
	return nil
}

// wayLine reads a line of that benchmark.
func (r *rig) wayLine(line string) {
	f := strings.Fields(line)
	if len(f) == 0 {
		return
	}
	_, part, _ := strings.Cut(f[0], "/")
	what, unit := "tunnel by its way, TCP, one stream", "Mbit/s"
	if strings.HasPrefix(part, "round-trip") {
		what, unit = "tunnel by its way, round trip", "µs"
	} else if !strings.HasPrefix(part, "throughput") {
		return
	}
	values := map[string]float64{}
	for i := 1; i < len(f); i++ {
		if v, err := strconv.ParseFloat(f[i-1], 64); err == nil {
			values[strings.TrimSuffix(f[i], "-"+unit)] = v
		}
	}
	if direct := values["direct"]; direct > 0 {
		r.report.Pair(what, unit, "relayed", values["carried"], "direct", direct)
		r.report.Add(what+", punched", unit, values["punched"])
		r.report.Ratio(what+", punched / direct", unit, values["punched"]/direct)
	}
}
