package screen

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"kith.dev/core/trust/wire"
)

// maxCell bounds a peer's word in a table, in characters.
const maxCell = 80

// Clean makes words from elsewhere safe to show: a name may hold control characters that drive a terminal, marks that
// turn the direction of writing, line breaks that fake a row. All of them become U+FFFD, and long ones are cut.
func Clean(s string) string {
	s = strings.Map(wire.Visible, strings.ToValidUTF8(s, "\uFFFD"))
	if utf8.RuneCountInString(s) > maxCell {
		s = string([]rune(s)[:maxCell-1]) + "…"
	}
	return s
}

// CleanLines is clean for texts of several lines; it cuts nothing.
func CleanLines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return wire.Visible(r)
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// ASCII writes JSON so that a terminal sees no character that could drive it. The value stays the same: JSON
// may write any character as \u and its number. encoding/json does so only below U+0020.
func ASCII(json []byte) []byte {
	var out bytes.Buffer
	for _, r := range string(json) {
		switch {
		case r == '\n' || wire.Visible(r) == r:
			out.WriteRune(r)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}
