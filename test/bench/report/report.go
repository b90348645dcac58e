// Package report is what the measurements end up in: values by the name of their figure, and what becomes of them, a table, a file, and which
// of the bounds that the project promises were met.
//
// It must never measure anything, or leave a value out: what is told is what came.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Figure is one thing measured some times.
type Figure struct {
	Group  string    `json:"group"`
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`           // "x" is a ratio of two values of the same round
	More   bool      `json:"more,omitempty"` // is better; else less is
	N      int       `json:"n"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"` // as they came
}

// Run is how one group ran.
type Run struct {
	Group   string  `json:"group"`
	Seconds float64 `json:"seconds"`
	// Load is the load average of the last minute when the group started: what else the machine did.
	Load float64 `json:"load"`
}

// Report is what build/bench.json holds.
type Report struct {
	Began   time.Time `json:"began"`
	Cores   int       `json:"cores"`
	Memory  string    `json:"memory"`
	Kernel  string    `json:"kernel"`
	Go      string    `json:"go"`
	Groups  []Run     `json:"groups"`
	Figures []*Figure `json:"figures"`
	Targets []Verdict `json:"targets"`
	Before  time.Time `json:"before,omitzero"`   // when the report began that this one was compared with
	Against string    `json:"against,omitempty"` // the build that was measured by turns with this one; "": it was an earlier run
	Changes []Change  `json:"changes,omitempty"`
	Failed  []string  `json:"failed,omitempty"`
}

// New is an empty one, of this machine.
func New() *Report {
	return &Report{Began: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Memory: memory(), Kernel: firstLine("/proc/sys/kernel/osrelease"), Go: runtime.Version()}
}

// Enter begins a group, of which all is until Leave.
func (r *Report) Enter(group string) {
	var load float64
	_, _ = fmt.Sscan(firstLine("/proc/loadavg"), &load)
	r.Groups = append(r.Groups, Run{Group: group, Load: load})
}

// Leave ends the group.
func (r *Report) Leave(took time.Duration) {
	r.Groups[len(r.Groups)-1].Seconds = math.Round(took.Seconds()*10) / 10
}

// rates are the units of which more is better.
var rates = []string{"/s", "MB/s", "Mbit/s"}

// Add adds a value to the figure of that name, which is made at its first value. Of what is counted by the second more is better, of all else less.
func (r *Report) Add(name, unit string, value float64) {
	r.add(r.Groups[len(r.Groups)-1].Group, name, unit, slices.Contains(rates, unit), value)
}

// Ratio adds one, of two values with a unit.
func (r *Report) Ratio(name, unit string, value float64) {
	r.add(r.Groups[len(r.Groups)-1].Group, name, "x", slices.Contains(rates, unit), value)
}

func (r *Report) add(group, name, unit string, more bool, value float64) {
	i := slices.IndexFunc(r.Figures, func(f *Figure) bool { return f.Group == group && f.Name == name })
	if i < 0 {
		i = len(r.Figures)
		r.Figures = append(r.Figures, &Figure{Group: group, Name: name, Unit: unit, More: more})
	}
	f := r.Figures[i]
	f.Values = append(f.Values, value)
	sorted := slices.Sorted(slices.Values(f.Values))
	f.N, f.Min, f.Max, f.Median = len(sorted), sorted[0], sorted[len(sorted)-1], median(sorted)
}

// Took is Add for a time.
func (r *Report) Took(name string, d time.Duration) { r.Add(name, "s", d.Seconds()) }

// Pair adds a value, its partner of the same round, and their ratio.
func (r *Report) Pair(what, unit, one string, a float64, other string, b float64) {
	r.Add(what+", "+one, unit, a)
	r.Add(what+", "+other, unit, b)
	if b != 0 {
		r.Ratio(what+", "+one+" / "+other, unit, a/b)
	}
}

// median of values in order; of an even number, the mean of the two in the middle.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Finish compares what was measured with the targets, shows both, and writes all of it into a file. failed are the groups that could not measure.
func (r *Report) Finish(failed []string, to io.Writer, path string) error {
	r.Failed = failed
	r.judge()
	r.table(to)
	r.verdicts(to)
	r.changes(to)
	return r.write(path)
}

// Err says which groups could not measure; nil when all could.
func (r *Report) Err() error {
	if len(r.Failed) == 0 {
		return nil
	}
	return fmt.Errorf("not measured: %s", strings.Join(r.Failed, "; "))
}

func (r *Report) table(to io.Writer) {
	fmt.Fprintf(to, "\n%d cores, %s, Linux %s, %s\n\n", r.Cores, r.Memory, r.Kernel, r.Go)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "n\tmedian\tmin\tmax\tunit\t figure")
	for i, f := range r.Figures {
		if i > 0 && f.Group != r.Figures[i-1].Group {
			fmt.Fprintln(w, "\t\t\t\t\t")
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t %s\n", f.N, digits(f.Median), digits(f.Min), digits(f.Max), f.Unit, f.Name)
	}
	_ = w.Flush()
	fmt.Fprintln(to)
	for _, g := range r.Groups {
		fmt.Fprintf(to, "%s took %.0f s, load before %.1f\n", g.Group, g.Seconds, g.Load)
	}
}

// digits gives three that count.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

func (r *Report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

func memory() string {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var kB int
		if n, _ := fmt.Sscanf(s.Text(), "MemTotal: %d kB", &kB); n == 1 {
			return fmt.Sprintf("%d GB memory", (kB+500_000)/1_000_000)
		}
	}
	return ""
}
