package discovery

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCleanName(t *testing.T) {
	for in, want := range map[string]string{
		"bob":                               "bob",
		"  bob's   laptop\t":                "bob's laptop",
		"Zoë 李 🦊":                           "Zoë 李 🦊",
		"bob\x1b[31mred\x00\r\nx":           "bob[31mred x",
		"\u202egnp.bob\u202c":               "gnp.bob", // direction override
		"bo\u200bb\u2060\ufeff":             "bob",     // invisible
		"b\u0300\u0301\u0302\u0303\u0304ob": "b\u0300\u0301ob",
		"\u0301bob":                         "bob", // an accent on what stands before
		"bob\xff\xfe":                       "bob",
		"a\u2028b\u00a0c":                   "a b c",
		"\u200e \u200f":                     "",
		"":                                  "",
		strings.Repeat("x", 5000):           strings.Repeat("x", 63),
		strings.Repeat("🦊", 100):            strings.Repeat("🦊", 60), // 240 bytes
		strings.Repeat("a ", 100):           strings.Repeat("a ", 31) + "a",
	} {
		if got := CleanName(in); got != want {
			t.Errorf("CleanName(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzCleanName(f *testing.F) {
	f.Add("bob \u202e\u0301\xff")
	f.Fuzz(func(t *testing.T, in string) {
		out := CleanName(in)
		if !utf8.ValidString(out) || utf8.RuneCountInString(out) > maxNameRunes || len(out) > maxNameBytes || CleanName(out) != out {
			t.Errorf("CleanName(%q) = %q", in, out)
		}
	})
}

func TestCard(t *testing.T) {
	bob := TXT{ID: testID("bob"), Name: "bob"}
	id := "id=" + bob.ID.Compact()
	for _, c := range []struct {
		name string
		txt  []string
		want TXT
		ok   bool
	}{
		{"our own", bob.Strings(), bob, true},
		{"a later version's, keys in capitals", []string{"V=2", strings.ToUpper(id), "new=x", "Name=bob", "flag"}, bob, true},
		{"the first of a key counts", []string{"v=1", id, "name=bob", "name=mallory", "v=9"}, bob, true},
		{"no name", []string{"v=1", id}, TXT{bob.ID, bob.ID.Short()}, true},
		{"name of nothing visible", []string{"v=1", id, "name=\u202e"}, TXT{bob.ID, bob.ID.Short()}, true},
		{"no version", []string{id, "name=bob"}, TXT{}, false},
		{"bad version", []string{"v=-1", id}, TXT{}, false},
		{"no ID", []string{"v=1", "name=bob"}, TXT{}, false},
		{"mistyped ID", []string{"v=1", id[:len(id)-1] + "1"}, TXT{}, false},
		{"nothing", nil, TXT{}, false},
	} {
		if got, ok := ParseTXT(c.txt); ok != c.ok || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", c.name, got, ok)
		}
	}
}
