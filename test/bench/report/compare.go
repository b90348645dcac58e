package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"
)

// Verdict on a figure that two builds, or two runs, have.
const (
	Same   = "same"   // no difference beyond noise, or none of a tenth
	Better = "better" // by more than a tenth, and beyond noise
	Worse  = "worse"
	Unsure = "unsure" // by more than a tenth, and too few values, or too far apart, to tell
)

// tenth is the difference that matters.
const tenth = 0.1

// Change is what became of a figure.
type Change struct {
	Group   string    `json:"group"`
	Figure  string    `json:"figure"`
	Unit    string    `json:"unit"`
	Before  float64   `json:"before"` // medians
	After   float64   `json:"after"`
	Was     []float64 `json:"was"` // all values of before
	P       float64   `json:"p"`   // how likely such a difference is when there is none, by the U test of Mann and Whitney
	Verdict string    `json:"verdict"`
}

// Read is a report that was written.
func Read(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Merge adds the values of a later run, as if they were of this one.
func (r *Report) Merge(later *Report) {
	r.Groups = append(r.Groups, later.Groups...)
	r.Failed = append(r.Failed, later.Failed...)
	for _, f := range later.Figures {
		for _, v := range f.Values {
			r.add(f.Group, f.Name, f.Unit, f.More, v)
		}
	}
}

// Compare notes what became of each figure that a report of before has, too. against names the other build, where both were measured by turns.
func (r *Report) Compare(before *Report, against string) {
	r.Before, r.Against, r.Changes = before.Began, against, nil
	for _, f := range r.Figures {
		i := slices.IndexFunc(before.Figures, func(b *Figure) bool { return b.Group == f.Group && b.Name == f.Name && b.Unit == f.Unit })
		if i < 0 {
			continue
		}
		b := before.Figures[i]
		c := Change{Group: f.Group, Figure: f.Name, Unit: f.Unit, Before: b.Median, After: f.Median, Was: b.Values, Verdict: Same}
		sample := func(f *Figure) *benchmath.Sample {
			return benchmath.NewSample(slices.Clone(f.Values), &benchmath.DefaultThresholds)
		}
		test := benchmath.AssumeNothing.Compare(sample(b), sample(f))
		c.P = test.P
		switch apart := math.Abs(f.Median-b.Median) > tenth*math.Abs(b.Median); {
		case !apart:
		case test.P > test.Alpha:
			c.Verdict = Unsure
		case (f.Median > b.Median) == f.More:
			c.Verdict = Better
		default:
			c.Verdict = Worse
		}
		r.Changes = append(r.Changes, c)
	}
}

// changes shows those that matter, the worse ones first.
func (r *Report) changes(to io.Writer) {
	if len(r.Changes) == 0 {
		return
	}
	count := map[string]int{}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nbefore\tafter\tratio\tp\tunit\t\t figure")
	for _, verdict := range []string{Worse, Unsure, Better, Same} {
		for _, c := range r.Changes {
			if c.Verdict != verdict {
				continue
			}
			if count[verdict]++; verdict == Same {
				continue
			}
			ratio := "-"
			if c.Before != 0 {
				ratio = digits(c.After / c.Before)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%.3f\t%s\t%s\t %s\n", digits(c.Before), digits(c.After), ratio, c.P, c.Unit, strings.ToUpper(c.Verdict), c.Figure)
		}
	}
	_ = w.Flush()
	fmt.Fprintf(to, "%d figures compared: %d worse by more than a tenth and beyond noise, %d better, %d not to be told from noise, %d the same\n",
		len(r.Changes), count[Worse], count[Better], count[Unsure], count[Same])
}
