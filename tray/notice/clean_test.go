package notice

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"kith.dev/core/api"
)

func TestHostileNames(t *testing.T) {
	for in, want := range map[string]string{
		"bob":                              "bob",
		"  bob\n\tthe\r\nbuilder ":         "bob the builder",
		"a\u202Eevil\u202C b":              "a evil b",
		"x\u200By\uFEFFz":                  "x y z",
		"\x1b[31mred\x1b[0m":               "[31mred [0m",
		"":                                 "(no name)",
		"\u202E\n":                         "(no name)",
		"שלום":                             "\u2068שלום\u2069",
		"👩\u200D💻 lab":                     "👩\u200D💻 lab",
		"a\xffb":                           "a\uFFFDb",
		"Z\u0351\u0352\u0353\u0354\u0355o": "Z\u0351\u0352o",
		strings.Repeat("é", 300):           strings.Repeat("é", maxName) + "…",
		strings.Repeat("x", maxName):       strings.Repeat("x", maxName),
		"<b>bob</b> & <a href='x'>co</a>":  "<b>bob</b> & <a href='x'>co</a>",
	} {
		if got := name(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("bob\u202E", 4)
	f.Add(strings.Repeat("e\u0301", 50), 10)
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 1 || most > 1000 {
			t.Skip()
		}
		got := clean(s, most)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x00\x1b\u202A\u202B\u202C\u202D\u202E\u2066\u2067\u200E\u200F") {
			t.Errorf("%q gives %q", s, got)
		}
		if n := utf8.RuneCountInString(got); n > (most+1)*(maxMark+1)+2+2*most { // joiners of emoji come on top
			t.Errorf("%q has %d characters, %d are allowed", got, n, most)
		}
	})
}

func TestSentences(t *testing.T) {
	for in, want := range map[string]string{"": "", "no disk": "No disk.", "why?": "Why?", "Done.": "Done."} {
		if got := sentence(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := amounts(api.Resources{"ephemeral-storage": "9Gi"}); got != "ephemeral-storage 9Gi" {
		t.Error(got)
	}
}

func TestSettingsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kith", "notifications.json")
	s, err := LoadSettings(path)
	if err != nil || !s.Shows(PeerBack) {
		t.Fatal(s, err)
	}
	if err := s.With(PeerBack, false).With(Tray, false).Save(path); err != nil {
		t.Fatal(err)
	}
	s, err = LoadSettings(path)
	if err != nil || s.Shows(PeerBack) || !s.Shows(Request) || !s.Shows(Tray) || !slices.Equal(s.Muted, []Kind{PeerBack, Tray}) {
		t.Fatal(s, err)
	}
	if s = s.With(PeerBack, true); !s.Shows(PeerBack) {
		t.Error(s)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err = LoadSettings(path); err == nil || !s.Shows(PeerBack) || !strings.Contains(err.Error(), path) {
		t.Error(s, err)
	}
	if err := os.WriteFile(path, make([]byte, maxSettings+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = LoadSettings(path); err == nil {
		t.Error("a huge file was read")
	}
}
