package notice

import (
	"slices"
	"strings"
	"unicode"

	"kith.dev/tray/words"
)

// title begins with a capital letter.
func title(s string) string {
	r := []rune(words.Text(s))
	if len(r) > 0 {
		r[0] = unicode.ToUpper(r[0])
	}
	return string(r)
}

// sentence ends with a full stop, too; nothing stays nothing.
func sentence(s string) string {
	s = title(s)
	if s == "" || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "…") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// lines joins the parts that are not empty.
func lines(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "\n")
}
