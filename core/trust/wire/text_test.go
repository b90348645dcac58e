package wire

import (
	"net/netip"
	"strings"
	"testing"
)

func TestWhatOthersSayIsFitToBeShown(t *testing.T) {
	for text, want := range map[string]string{
		"bob":                      "bob",
		"déjà vu":                  "déjà vu",
		"a\nb":                     "a?b",
		"\x1b[31mred":              "?[31mred",
		"a\u202Eb":                 "a?b", // turns the direction of writing
		"\xff\xfe":                 "?",
		strings.Repeat("x", 21):    strings.Repeat("x", 17) + "…",
		strings.Repeat("é", 11):    strings.Repeat("é", 8) + "…", // no half letter
		strings.Repeat("\x00", 30): strings.Repeat("?", 17) + "…",
	} {
		got := Line(text, 20)
		if got != want || len(got) > 20 || !Printable(got) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if Printable(text) != (got == text || len(text) > 20 && !strings.Contains(text, "\x00")) {
			t.Errorf("%q is printable: %v", text, Printable(text))
		}
	}
	if got := Cut("éé", 3); got != "é" {
		t.Errorf("%q", got)
	}
}

func TestANeighbourhoodIsWhatOneMachineHas(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1": "2001:db8::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := Neighbourhood(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if Neighbourhood(netip.Addr{}).IsValid() {
		t.Error("nobody has a neighbourhood")
	}
}
