package main

import (
	"testing"

	"kith.dev/test/bench/report"
)

func TestLinesOfTheGatewaysBenchmark(t *testing.T) {
	r := &rig{report: report.New()}
	r.report.Enter("gateway")
	for _, line := range []string{
		"goos: linux", "", "BenchmarkTunnel/one-stream-2         	       1	 695280593 ns/op	      2605 gateway-Mbit/s	         1.062 ratio	      2400 wireguard-go-Mbit/s",
		"BenchmarkTunnel/UDP         	       1	2003761625 ns/op	       384.0 gateway-Mbit/s	         0.9850 ratio	       400.0 wireguard-go-Mbit/s",
		"BenchmarkTunnel/guest-to-guest-2     	       1	 950438028 ns/op	      1500 by-home-Mbit/s	      2500 direct-Mbit/s	         0.5621 ratio", "PASS",
	} {
		r.gatewayLine(line)
	}
	got := map[string]float64{}
	for _, f := range r.report.Figures {
		got[f.Name] = f.Median
	}
	if len(got) != 9 || got["gateway alone, TCP, one stream, gateway"] != 2605 || got["gateway alone, UDP, gateway / wireguard-go"] != 0.96 ||
		got["gateway alone, guest to guest of another provider, by home / to home"] != 0.6 {
		t.Errorf("%v", got)
	}
}
