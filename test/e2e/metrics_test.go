//go:build lab

package e2e

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"kith.dev/test/lab"
)

// scrape reads the metrics through the local socket.
func scrape(t *testing.T, p *lab.Laptop) map[string]*dto.MetricFamily {
	t.Helper()
	resp, err := local(p).Get("http://kithd/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("%s: metrics: %v", p.Name(), err)
	}
	return families
}

// valueOf finds the metric with the labels "a=b,c=d", sorted by name as they are shown.
func valueOf(family *dto.MetricFamily, labels string) (float64, bool) {
	for _, m := range family.GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetName()+"="+l.GetValue())
		}
		if strings.Join(have, ",") == labels {
			return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
		}
	}
	return 0, false
}
