package main

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
	Unit   string    `json:"unit"` // "x" is a ratio of two values of the same round
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
	Failed  []string  `json:"failed,omitempty"`
}

func newReport() *Report {
	return &Report{Began: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Memory: memory(), Kernel: firstLine("/proc/sys/kernel/osrelease"), Go: runtime.Version()}
}

func (r *Report) enter(group string) {
	var load float64
	_, _ = fmt.Sscan(firstLine("/proc/loadavg"), &load)
	r.Groups = append(r.Groups, Run{Group: group, Load: load})
}

func (r *Report) leave(took time.Duration) {
	r.Groups[len(r.Groups)-1].Seconds = math.Round(took.Seconds()*10) / 10
}

// add adds a value to the figure of that name, which is made at its first value.
func (r *Report) add(name, unit string, value float64) {
	group := r.Groups[len(r.Groups)-1].Group
	i := slices.IndexFunc(r.Figures, func(f *Figure) bool { return f.Group == group && f.Name == name })
	if i < 0 {
		i = len(r.Figures)
		r.Figures = append(r.Figures, &Figure{Group: group, Name: name, Unit: unit})
	}
	f := r.Figures[i]
	f.Values = append(f.Values, value)
	sorted := slices.Sorted(slices.Values(f.Values))
	f.N, f.Min, f.Max, f.Median = len(sorted), sorted[0], sorted[len(sorted)-1], median(sorted)
}

// took is add for a time.
func (r *Report) took(name string, d time.Duration) { r.add(name, "s", d.Seconds()) }

// pair adds a value, its partner of the same round, and their ratio.
func (r *Report) pair(what, unit, one string, a float64, other string, b float64) {
	r.add(what+", "+one, unit, a)
	r.add(what+", "+other, unit, b)
	if b != 0 {
		r.add(what+", "+one+" / "+other, "x", a/b)
	}
}

// median of values in order; of an even number, the mean of the two in the middle.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
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
