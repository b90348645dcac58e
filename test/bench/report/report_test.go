package report

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
	r := New()
	r.Enter("pods")
	for _, v := range [][2]float64{{2, 1}, {9, 3}, {4, 1}, {1, 0}} {
		r.Pair("one pod", "s", "abroad", v[0], "home", v[1])
	}
	r.Leave(1500 * time.Millisecond)
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
