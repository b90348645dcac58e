package api

import (
	"testing"
	"time"
)

func TestSpansAreReadAsTheyAreMeant(t *testing.T) {
	for text, want := range map[string]string{
		"7d": "7 days", "168h": "7 days", "1d": "1 day", "36h": "36 hours", "1h": "1 hour", "90m": "90 minutes", "1h0m1s": "3601 seconds", "500ms": "500ms", "0d": "0s",
	} {
		if d, err := ParseSpan(text); err != nil || Span(d) != want {
			t.Errorf("%s: %s, %v; want %s", text, Span(d), err, want)
		}
	}
	for _, text := range []string{"", "d", "1.5d", "-1d", "99999999d", "7", "a week"} {
		if d, err := ParseSpan(text); err == nil {
			t.Errorf("%q is %s", text, d)
		}
	}
	if d, err := ParseSpan("8760h"); err != nil || d != 365*24*time.Hour {
		t.Error(d, err)
	}
}
