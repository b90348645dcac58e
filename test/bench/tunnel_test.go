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

func TestLinesOfTheWaysBenchmark(t *testing.T) {
	r := &rig{report: report.New()}
	r.report.Enter("ways")
	for _, line := range []string{
		"pkg: kith.dev/core/net/gateway", "",
		"BenchmarkWays/throughput-2         	       1	 695280593 ns/op	       600.0 carried-Mbit/s	      2400 direct-Mbit/s	      1200 punched-Mbit/s",
		"BenchmarkWays/round-trip         	       1	 695280593 ns/op	       900.0 carried-µs	      300.0 direct-µs	      330.0 punched-µs", "PASS",
	} {
		r.wayLine(line)
	}
	got := map[string]float64{}
	for _, f := range r.report.Figures {
		got[f.Name] = f.Median
	}
	if got["tunnel by its way, TCP, one stream, relayed / direct"] != 0.25 || got["tunnel by its way, TCP, one stream, punched / direct"] != 0.5 ||
		got["tunnel by its way, round trip, relayed / direct"] != 3 || got["tunnel by its way, round trip, relayed"] != 900 {
		t.Errorf("%v", got)
	}
}
