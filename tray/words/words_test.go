package words

import (
	"strings"
	"testing"

	"kith.dev/core/api"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"bob": "bob", "two\nlines": "two\uFFFDlines", "\u202eevil": "\uFFFDevil", "a\u200db": "a\uFFFDb", "👩\u200d👧": "👩\u200d👧",
		"שלום": "\u200e\u2068שלום\u2069", "a\xffb": "a\uFFFDb", "e\u0301\u0301\u0301\u0301": "e\u0301\u0301", "\u0301x": "x", "0123456789abc": "0123456789a…",
		"0123456789ab": "0123456789ab", "": "", "\u00a0": "\uFFFD", "\x1b[31m": "\uFFFD[31m",
	} {
		if got := Clean(in, 12); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestNameIsNeverEmptyAndAddsNothing(t *testing.T) {
	for in, want := range map[string]string{"": "(no name)", " \t": "(no name)", "bob · connected": "bob . connected"} {
		if got := Name(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLinesAreFewAndShort(t *testing.T) {
	if got := Lines("a\n\n  b \r\n\u202ec"); got != "a\nb\n\uFFFDc" {
		t.Errorf("%q", got)
	}
	if got := Lines(strings.Repeat("x\n", 100)); strings.Count(got, "\n") != maxBody-1 {
		t.Errorf("%q", got)
	}
}

func TestCodeAndAmounts(t *testing.T) {
	if got := Code("069210") + Code("12"); got != "069 21012" {
		t.Error(got)
	}
	if got := Amounts(api.Resources{"cpu": "1", "ephemeral-storage": "1Gi"}); got != "cpu 1" {
		t.Error(got)
	}
	if got := Amounts(api.Resources{"ephemeral-storage": "1Gi"}); got != "ephemeral-storage 1Gi" {
		t.Error(got)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("bob\n", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = most&0xff + 1
		got := Clean(s, most)
		if strings.ContainsAny(got, "\n\r\t\u202e\u2067") || len([]rune(got)) > 3*most+3 {
			t.Errorf("%q", got)
		}
	})
}
