package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPairTellsTheRatioOfEachRound(t *testing.T) {
	r := newReport()
	r.enter("pods")
	for _, v := range [][2]float64{{2, 1}, {9, 3}, {4, 1}, {1, 0}} {
		r.pair("one pod", "s", "abroad", v[0], "home", v[1])
	}
	r.leave(1500 * time.Millisecond)
	want := []Figure{
		{Name: "one pod, abroad", N: 4, Median: 3, Min: 1, Max: 9},
		{Name: "one pod, home", N: 4, Median: 1, Min: 0, Max: 3},
		{Name: "one pod, abroad / home", N: 3, Median: 3, Min: 2, Max: 4},
	}
	if len(r.Figures) != len(want) {
		t.Fatalf("%d figures, want %d", len(r.Figures), len(want))
	}
	for i, w := range want {
		if f := r.Figures[i]; f.Name != w.Name || f.N != w.N || f.Median != w.Median || f.Min != w.Min || f.Max != w.Max {
			t.Errorf("figure %d is %+v, want %+v", i, *f, w)
		}
	}

	var table bytes.Buffer
	r.table(&table)
	if !strings.Contains(table.String(), "one pod, abroad / home") || !strings.Contains(table.String(), "pods took 2 s") {
		t.Errorf("the table lacks something:\n%s", &table)
	}
	path := filepath.Join(t.TempDir(), "deep", "bench.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	var back Report
	if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &back) != nil || len(back.Figures) != len(want) {
		t.Errorf("what was written reads as %+v (%v)", back, err)
	}
}

func TestLinesOfTheGatewaysBenchmark(t *testing.T) {
	r := &rig{report: newReport()}
	r.report.enter("gateway")
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
