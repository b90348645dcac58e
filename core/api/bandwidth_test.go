package api

import "testing"

func TestABandwidthIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]Bandwidth{
		"": {}, "20M": {"20M", "20M"}, "ingress=50M,egress=10M": {"50M", "10M"}, "egress=100k": {Egress: "100k"}, "ingress=99G": {Ingress: "99G"},
	} {
		b, err := ParseBandwidth("bandwidth", text)
		if err != nil || b != want || b.String() != text {
			t.Errorf("%q: %+v, %v; written %q", text, b, err, b)
		}
	}
	if b, err := ParseBandwidth("bandwidth", " egress=1M , ingress=2M "); err != nil || b != (Bandwidth{"2M", "1M"}) {
		t.Errorf("%+v, %v", b, err)
	}
	for _, text := range []string{"20", "0M", "99k", "100G", "1.5M", "-1M", "20m", "20Mi", "20M,20M", "ingress", "ingress=", "egress=1M,egress=2M", "up=1M", ",", "egress=1M,", "99999999999999999999M"} {
		if b, err := ParseBandwidth("bandwidth", text); err == nil || b != (Bandwidth{}) {
			t.Errorf("%q: %+v, %v", text, b, err)
		}
	}
	for text, bits := range map[string]uint64{"100k": 100e3, "1M": 1e6, "99999M": 99999e6, "99G": 99e9} {
		if got, ok := ParseBitRate(text); !ok || got != bits {
			t.Errorf("%s: %d, %t", text, got, ok)
		}
	}
}
