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

// target is what the median of a figure is wanted to be.
type target struct {
	figure string
	atMost bool // else at least
	bound  float64
}

// targets are the figures that the project promises. Seconds, megabytes and the like say what this machine can do; ratios
// hold on any.
var targets = []target{
	{figure: "accept, until node Ready and tunnel up", atMost: true, bound: 1.5},
	{figure: "one pod Ready, abroad - at home", atMost: true, bound: 0.1},
	{figure: "Deployment of 50 pods: rate, abroad / at home", bound: 0.6},
	{figure: "Deployment of 1000 pods on fake nodes: rate, abroad / direct", bound: 0.35},
	{figure: "Deployment of 1000 pods on fake nodes: CPU time of both laptops, abroad / direct", atMost: true, bound: 2.6},
	{figure: "service: created, until its endpoints are ready at the peer", atMost: true, bound: 35},
	{figure: "gateway alone, TCP, one stream, gateway / wireguard-go", bound: 1},
	{figure: "gateway alone, TCP, eight streams, gateway / wireguard-go", bound: 1},
	{figure: "gateway alone, UDP, gateway / wireguard-go", bound: 1},
	{figure: "TCP, pod to pod, one stream, tunnel / wireguard-go", bound: 0.8},
	{figure: "TCP, pod to pod, eight streams, tunnel / wireguard-go", bound: 0.8},
	{figure: "UDP, pod to pod, tunnel / wireguard-go", bound: 0.8},
	{figure: "layer of an image, from laptop to laptop, from home / plain TLS", bound: 0.8},
	{figure: "rolling update of ten pods on two peers, an image that only home has / one that is everywhere", atMost: true, bound: 1.3},
	{figure: "TCP, pod to pod, tunnel, eight streams / one", bound: 1},
	{figure: "TCP, guest to guest of another provider, one stream, by home / to home", bound: 0.6},
	{figure: "TCP, guest to guest of another provider, eight streams, by home / to home", bound: 0.6},
	{figure: "memory, one peer, two pods, consumer: kithd", atMost: true, bound: 60},
	{figure: "memory, one peer, two pods, provider: kithd", atMost: true, bound: 60},
	{figure: "memory, after 1000 pods came and went, consumer: kithd", atMost: true, bound: 100},
	{figure: "memory, after 1000 pods came and went, provider: kithd", atMost: true, bound: 100},
	{figure: "memory, each of 20 further peers with a node, consumer: kithd", atMost: true, bound: 1.5},
	{figure: "idle CPU, one peer, two pods, consumer: kithd", atMost: true, bound: 0.5},
	{figure: "idle CPU, one peer, two pods, provider: kithd", atMost: true, bound: 0.5},
	{figure: "written to disk in an idle day, one peer, two pods, consumer: engine and kithd", atMost: true, bound: 200},
	{figure: "written to disk in an idle day, one peer, two pods, provider: engine and kithd", atMost: true, bound: 200},
	{figure: "database and log, the largest while 1000 pods came and went", atMost: true, bound: 128},
	{figure: "memory, one peer, two pods, consumer: engine and kithd", atMost: true, bound: 480},
	{figure: "memory, one peer, two pods, provider: engine and kithd", atMost: true, bound: 480},
}

// Verdict is a target and what came of it.
type Verdict struct {
	Figure string  `json:"figure"`
	Unit   string  `json:"unit"`
	N      int     `json:"n"`
	Wanted string  `json:"wanted"` // such as "≤ 60"
	Value  float64 `json:"value"`
	Met    bool    `json:"met"`
}

// judge compares what was measured with the targets.
func (r *Report) judge() {
	r.Targets = nil
	for _, t := range targets {
		for _, f := range r.Figures {
			if f.Name != t.figure {
				continue
			}
			v := Verdict{Figure: f.Name, Unit: f.Unit, N: f.N, Value: f.Median}
			if t.atMost {
				v.Wanted, v.Met = "≤ "+digits(t.bound), v.Value <= t.bound
			} else {
				v.Wanted, v.Met = "≥ "+digits(t.bound), v.Value >= t.bound
			}
			r.Targets = append(r.Targets, v)
		}
	}
}

func (r *Report) verdicts(to io.Writer) {
	if len(r.Targets) == 0 {
		return
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nn\tmedian\twanted\tunit\t\t figure")
	for _, v := range r.Targets {
		verdict := "met"
		if !v.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t %s\n", v.N, digits(v.Value), v.Wanted, v.Unit, verdict, v.Figure)
	}
	_ = w.Flush()
}
