package screen

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestWordsOfPeersCannotDriveATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"bob":                   "bob",
		"Bob's <laptop> ünï 日本": "Bob's <laptop> ünï 日本",
		"a\nb\rc\td":            "a\uFFFDb\uFFFDc\uFFFDd",
		"\x1b[31mred":           "\uFFFD[31mred",
		"\u009b31mred":          "\uFFFD31mred",
		"al\u202eice":           "al\uFFFDice",
		"zero\u200bwidth":       "zero\uFFFDwidth",
		"bad\xff\xfeutf8":       "bad\uFFFDutf8",
		"\u00a0space":           "\uFFFDspace",
		strings.Repeat("x", 90): strings.Repeat("x", 79) + "…",
		"":                      "",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := CleanLines("a\n\tb\x1b[1m"); got != "a\n\tb\uFFFD[1m" {
		t.Errorf("%q", got)
	}
}

func FuzzCleanedWordsStayOnTheirLine(f *testing.F) {
	f.Add("bob")
	f.Add("\x1b]0;owned\x07\u202e\r\n\u009b")
	f.Fuzz(func(t *testing.T, name string) {
		for _, r := range Clean(name) {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 {
				t.Errorf("%q leaves %q", name, r)
			}
		}
		// The same for JSON, which must stay the same value.
		b, _ := json.Marshal(name)
		var was, is string
		if err := json.Unmarshal(b, &was); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(ASCII(b), &is); err != nil || is != was {
			t.Errorf("%q became %q: %v", was, is, err)
		}
	})
}

func TestAgesAndBytes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 119 * time.Minute: "119m", 47 * time.Hour: "47h", 72 * time.Hour: "3d",
	} {
		if got := Age(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1.0KiB", 1536 << 10: "1.5MiB", 1 << 63: "8.0EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestTableCountsWhatATerminalShows(t *testing.T) {
	var out bytes.Buffer
	Table(&out, true, false, []Column[[2]string]{
		{Title: "A", Cell: func(r [2]string) string { return r[0] }},
		{Title: "B", Cell: func(r [2]string) string { return r[1] }},
		{Title: "EMPTY", Cell: func([2]string) string { return "" }, Need: true},
	}, [][2]string{{"connected", "1"}, {"日本", "2"}, {"e\u0301", ""}})
	want := "A           B\nconnected   1\n日本        2\ne\u0301           -\n"
	plain := strings.NewReplacer("\x1b[32m", "", "\x1b[1m", "", "\x1b[0m", "").Replace(out.String())
	if plain != want || plain == out.String() {
		t.Errorf("%q, want %q", plain, want)
	}
}
