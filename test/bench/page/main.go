// Command page makes a page of a report of the measurements: a table with a small plot for each figure, in one HTML file that needs nothing else.
//
//	page build/bench.json build/bench.html
//
// It is a module of its own, as only it draws. It must never compute a verdict: those are in the report.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"image/color"
	"log"
	"math"
	"os"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// figure, change, verdict and report are those of kith.dev/test/bench/report, as far as they are shown.
type figure struct {
	Group, Name, Unit string
	N                 int
	Median, Min, Max  float64
	Values            []float64

	Change *change  `json:"-"`
	Target *verdict `json:"-"`
}

type change struct {
	Group, Figure, Unit, Verdict string
	Before, After, P             float64
	Was                          []float64
}

type verdict struct {
	Figure, Wanted string
	Met            bool
}

type report struct {
	Began, Before    time.Time
	Against          string
	Cores            int
	Memory, Kernel   string
	Go               string
	Groups           []struct{ Group string }
	Figures          []*figure
	Targets          []*verdict
	Changes          []*change
	Failed           []string
	Sections         []section `json:"-"`
	Missed, Worsened []*figure `json:"-"`
}

type section struct {
	Name    string
	Figures []*figure
}

//go:embed page.html
var text string

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: page REPORT.json PAGE.html")
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		log.Fatal("page: ", err)
	}
}

func write(from, to string) error {
	in, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	page, err := page(in)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return os.WriteFile(to, page, 0o644)
}

// page is the page of a report.
func page(in []byte) ([]byte, error) {
	var r report
	if err := json.Unmarshal(in, &r); err != nil {
		return nil, err
	}
	r.arrange()
	var wrong error
	t, err := template.New("page").Funcs(template.FuncMap{
		"digits": digits,
		"ratio": func(c *change) string {
			if c.Before == 0 {
				return "-"
			}
			return digits(c.After / c.Before)
		},
		"plot": func(f *figure) template.HTML {
			svg, err := strip(f)
			wrong = errors.Join(wrong, err)
			return template.HTML(svg) //nolint:gosec // numbers alone
		},
	}).Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, r)
	return out.Bytes(), errors.Join(err, wrong)
}

// arrange has each figure stand in its group, with its target and what became of it.
func (r *report) arrange() {
	for _, f := range r.Figures {
		for _, t := range r.Targets {
			if t.Figure == f.Name {
				f.Target = t
			}
		}
		for _, c := range r.Changes {
			if c.Group == f.Group && c.Figure == f.Name {
				f.Change = c
			}
		}
		if f.Target != nil && !f.Target.Met {
			r.Missed = append(r.Missed, f)
		}
		if f.Change != nil && f.Change.Verdict == "worse" {
			r.Worsened = append(r.Worsened, f)
		}
		if n := len(r.Sections); n == 0 || r.Sections[n-1].Name != f.Group {
			r.Sections = append(r.Sections, section{Name: f.Group})
		}
		s := &r.Sections[len(r.Sections)-1]
		s.Figures = append(s.Figures, f)
	}
}

var (
	now    = color.NRGBA{0x1f, 0x5f, 0xa8, 0xa0}
	before = color.NRGBA{0x80, 0x80, 0x80, 0x90}
)

// Size of a plot.
const width, height = 260, 38 * vg.Length(1)

// strip draws the values of a figure as points on a line from 0 on, and above them those of before.
func strip(f *figure) (string, error) {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"} // where a browser has none, another takes its place
	p := plot.New()
	p.HideY()
	p.BackgroundColor = color.Transparent
	p.X.Tick.Label.Font.Size, p.X.Padding = 7, 0
	most := 0.0
	for _, row := range []struct {
		values []float64
		y      float64
		color  color.Color
	}{{f.was(), 1, before}, {f.Values, 0, now}} {
		if len(row.values) == 0 {
			continue
		}
		points := make(plotter.XYs, len(row.values))
		for i, v := range row.values {
			points[i] = plotter.XY{X: v, Y: row.y}
			most = math.Max(most, v)
		}
		s, err := plotter.NewScatter(points)
		if err != nil {
			return "", err
		}
		s.GlyphStyle = draw.GlyphStyle{Color: row.color, Radius: 2, Shape: draw.CircleGlyph{}}
		p.Add(s)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = math.Min(0, p.X.Min), most*1.05, -0.7, 1.7
	if p.X.Max <= p.X.Min {
		p.X.Max = p.X.Min + 1
	}
	c := vgsvg.New(width, height)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	_, svg, found := strings.Cut(b.String(), "<svg") // without the declaration of a document of its own
	if !found {
		return "", errors.New("the plot is no SVG")
	}
	return "<svg" + svg, nil
}

func (f *figure) was() []float64 {
	if f.Change == nil {
		return nil
	}
	return f.Change.Was
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
	}
	return fmt.Sprintf("%.3f", v)
}
