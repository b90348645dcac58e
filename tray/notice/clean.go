package notice

import (
	"strings"
	"unicode"

	"kith.dev/core/api"
)

const (
	maxName = 32  // characters of a peer's name
	maxText = 160 // characters of a sentence
	maxMark = 2   // combining marks on one character: more of them paint over the lines around
)

// clean makes words from elsewhere safe to show in one line: line breaks, control characters and marks that turn the direction of
// writing become one space, long words are cut, and words that are written from right to left are isolated (Unicode annex 9), so that
// they do not reorder what stands beside them.
func clean(s string, most int) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(s[:min(len(s), 16*most)], "\uFFFD"), blank)
	var b strings.Builder
	length, marks, turned := 0, 0, false
	for _, r := range strings.Join(words, " ") {
		if unicode.Is(unicode.M, r) {
			if marks++; marks > maxMark {
				continue
			}
		} else {
			marks = 0
			if length++; length > most {
				b.WriteRune('…')
				break
			}
		}
		turned = turned || rightToLeft(r)
		b.WriteRune(r)
	}
	if turned {
		return "\u2068" + b.String() + "\u2069"
	}
	return b.String()
}

// blank is what parts words, or shows nothing and may do harm. The joiner that emoji are made with may stay.
func blank(r rune) bool {
	return r != '\u200D' && (!unicode.IsGraphic(r) || unicode.Is(unicode.Zs, r) || unicode.Is(unicode.Co, r))
}

// rightToLeft goes by the blocks that Unicode keeps for such scripts.
func rightToLeft(r rune) bool {
	return r >= 0x0590 && r <= 0x08FF || r >= 0xFB1D && r <= 0xFDFF || r >= 0xFE70 && r <= 0xFEFE ||
		r >= 0x10800 && r <= 0x10FFF || r >= 0x1E800 && r <= 0x1EFFF
}

func name(s string) string {
	if s = clean(s, maxName); s != "" {
		return s
	}
	return "(no name)"
}

func text(s string) string { return clean(s, maxText) }

// code writes six digits as people read them out.
func code(s string) string {
	if s = clean(s, 12); len(s) == 6 {
		return s[:3] + " " + s[3:]
	}
	return s
}

// amounts leaves out scratch space, which always comes along, unless it is all.
func amounts(r api.Resources) string {
	short := api.Resources{}
	for name, amount := range r {
		if name != api.EphemeralStorage || len(r) == 1 {
			short[name] = amount
		}
	}
	return text(short.String())
}

// title begins with a capital letter.
func title(s string) string {
	r := []rune(text(s))
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
	var full []string
	for _, p := range parts {
		if p != "" {
			full = append(full, p)
		}
	}
	return strings.Join(full, "\n")
}
