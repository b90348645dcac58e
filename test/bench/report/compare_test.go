package report

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestADifferenceIsToldFromNoise(t *testing.T) {
	for name, c := range map[string]struct {
		unit          string
		before, after []float64
		want          string
	}{
		"slower":                   {"s", []float64{1, 1.1, 1, 1.05, 1}, []float64{2, 2.1, 2, 2.2, 2}, Worse},
		"faster":                   {"s", []float64{2, 2.1, 2, 2.2, 2}, []float64{1, 1.1, 1, 1.05, 1}, Better},
		"a higher rate":            {"MB/s", []float64{1, 1.1, 1, 1.05, 1}, []float64{2, 2.1, 2, 2.2, 2}, Better},
		"a lower rate":             {"MB/s", []float64{2, 2.1, 2, 2.2, 2}, []float64{1, 1.1, 1, 1.05, 1}, Worse},
		"less than a tenth":        {"s", []float64{1, 1, 1, 1, 1}, []float64{1.05, 1.06, 1.05, 1.04, 1.05}, Same},
		"noise":                    {"s", []float64{1, 3, 1, 2, 1.5}, []float64{2, 1, 3, 1.2, 2.5}, Unsure},
		"too few values":           {"s", []float64{1}, []float64{3}, Unsure},
		"nothing before":           {"MB", []float64{0, 0, 0, 0, 0}, []float64{1, 1, 1, 1, 1}, Worse},
		"values that are the same": {"MB", []float64{0, 0, 0}, []float64{0, 0, 0}, Same},
	} {
		reports := [2]*Report{New(), New()}
		for i, values := range [][]float64{c.before, c.after} {
			reports[i].Enter("pods")
			for _, v := range values {
				reports[i].Add("one pod", c.unit, v)
			}
			reports[i].Add("only in one of the two: "+name+strings.Repeat("!", i), "s", 1)
			reports[i].Leave(0)
		}
		reports[1].Compare(reports[0], "")
		if len(reports[1].Changes) != 1 || reports[1].Changes[0].Verdict != c.want {
			t.Errorf("%s: %+v, want %s", name, reports[1].Changes, c.want)
		}
	}
}

func TestRunsByTurnsAreOneReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.json")
	all := New()
	for _, v := range []float64{3, 1, 2} {
		r := New()
		r.Enter("image")
		r.Pair("layer", "MB/s", "from home", v, "plain", 4)
		r.Leave(0)
		if err := r.Finish([]string{"pods: no answer"}, &bytes.Buffer{}, path); err != nil {
			t.Fatal(err)
		}
		back, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Merge(back)
	}
	if f := all.Figures[2]; len(all.Figures) != 3 || f.N != 3 || f.Median != 0.5 || !f.More || f.Unit != "x" || len(all.Groups) != 3 || all.Err() == nil {
		t.Errorf("%+v, %v", f, all.Err())
	}
}
