package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestThePageShowsWhatTheReportHas(t *testing.T) {
	text, err := page([]byte(`{"began":"2026-11-29T04:00:00Z","before":"2026-11-28T04:00:00Z","cores":2,"groups":[{"group":"pods"}],"failed":["tunnel: <no answer>"],
		"figures":[{"group":"pods","name":"one pod, abroad","unit":"s","n":3,"median":2,"min":1,"max":3,"values":[1,2,3]},
			{"group":"pods","name":"nothing at all","unit":"MB","n":1,"values":[0]}],
		"targets":[{"figure":"one pod, abroad","wanted":"≤ 1.50","met":false}],
		"changes":[{"group":"pods","figure":"one pod, abroad","unit":"s","before":1,"after":2,"was":[1,1],"p":0.01,"verdict":"worse"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"tunnel: &lt;no answer&gt;", "Targets missed: one pod, abroad (2.00, wanted ≤ 1.50)", "beyond noise: one pod, abroad (2.00)", "the run of 2026-11-28 04:00", `<span class="worse">2.00 worse</span>`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if n := strings.Count(string(text), "<svg"); n != 2 || strings.Contains(string(text), "<?xml") || strings.Contains(string(text), "http://www.w3.org/1999/xlink\" href") {
		t.Errorf("%d plots", n)
	}
	_, svg, _ := strings.Cut(string(text), "<svg")
	svg, _, _ = strings.Cut("<svg"+svg, "</svg>")
	points := 0
	for d := xml.NewDecoder(strings.NewReader(svg + "</svg>")); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, is := token.(xml.StartElement); is && e.Name.Local == "path" {
			for _, a := range e.Attr {
				if a.Name.Local == "style" && strings.Contains(a.Value, "fill:#") {
					points++
				}
			}
		}
	}
	if points < 5 {
		t.Errorf("%d points, want five", points)
	}
}

func TestAReportThatIsNoneMakesNoPage(t *testing.T) {
	if _, err := page([]byte("{")); err == nil {
		t.Error("no error")
	}
}
