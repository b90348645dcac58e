package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// translation runs the gateway's own benchmark: two hosts with a gateway and a plain wireguard-go each, and a pod that
// sends by turns through the gateway with translated addresses, through it without, and through wireguard-go.
func translation(ctx context.Context, r *rig) error {
	c := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkTunnel$", "-benchtime", "1x", "-count", fmt.Sprint(r.rounds), "./core/gateway")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false") // as everything is built
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		values := map[string]float64{}
		f := strings.Fields(line)
		for i := 1; i < len(f); i++ {
			if v, err := strconv.ParseFloat(f[i-1], 64); err == nil {
				values[f[i]] = v
			}
		}
		if plain := values["wireguard-go-Mbit/s"]; plain > 0 {
			r.report.pair("gateway alone, TCP", "Mbit/s", "translated", values["translated-Mbit/s"], "wireguard-go", plain)
			r.report.add("gateway alone, TCP, untranslated", "Mbit/s", values["untranslated-Mbit/s"])
			r.report.add("gateway alone, TCP, untranslated / wireguard-go", "x", values["untranslated-Mbit/s"]/plain)
		}
	}
	return nil
}
