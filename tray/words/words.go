// Package words makes what others say fit to be shown on a desktop: one line, no tricks. Package menu and the tray put every name
// and sentence of the daemon and of peers through it. It must never lose who is meant: what is cut or replaced can be seen.
package words

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"kith.dev/core/api"
	"kith.dev/core/trust/wire"
)

const (
	maxName = 32  // characters of a peer's name
	maxText = 120 // characters of a sentence
	maxBody = 12  // lines of a text
	maxMark = 2   // combining marks on one character; more of them paint over the lines around
)

// Clean makes words from elsewhere safe to show in one line of a menu: control characters, line breaks and marks that
// turn the direction of writing become U+FFFD, long words are cut, and words that are written from right to left are isolated
// (Unicode annex 9), so that they do not reorder what stands beside them.
func Clean(s string, most int) string {
	var b strings.Builder
	runes, marks, turned, last := 0, 0, false, ' '
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if unicode.Is(unicode.M, r) {
			if marks++; marks > maxMark || runes == 0 {
				continue
			}
		} else {
			marks = 0
		}
		if runes++; runes == most && utf8.RuneCountInString(s) > most {
			b.WriteRune('…')
			break
		}
		turned = turned || rightToLeft(r)
		if r != joiner || !unicode.In(last, unicode.So, unicode.Sk, unicode.M) {
			r = wire.Visible(r)
		}
		b.WriteRune(r)
		last = r
	}
	if turned {
		// The mark before it has the whole line begin at the left where isolates are not known.
		return "\u200e\u2068" + b.String() + "\u2069"
	}
	return b.String()
}

// joiner makes one picture of several, as in a family of emoji. Elsewhere nobody sees it.
const joiner = '\u200d'

// rightToLeft goes by the blocks that Unicode keeps for such scripts.
func rightToLeft(r rune) bool {
	return r >= 0x0590 && r <= 0x08FF || r >= 0xFB1D && r <= 0xFDFF || r >= 0xFE70 && r <= 0xFEFE ||
		r >= 0x10800 && r <= 0x10FFF || r >= 0x1E800 && r <= 0x1EFFF
}

// divides replaces what stands between a name and what is said of it.
var divides = strings.NewReplacer("·", ".", "▸", ".", "◂", ".")

// Name is Clean for a peer's name, which must not look as if it said what stands after a dot or an arrow.
func Name(s string) string {
	if s = divides.Replace(Clean(strings.TrimSpace(s), maxName)); s == "" {
		return "(no name)"
	}
	return s
}

// Text is Clean for a sentence.
func Text(s string) string { return Clean(s, maxText) }

// Lines is Clean for a text of several lines, each of a sentence or two.
func Lines(s string) string {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if n++; n > maxBody {
			break
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(Clean(line, 2*maxText))
	}
	return b.String()
}

// Code writes six digits as people read them out.
func Code(code string) string {
	if code = Clean(code, 12); len(code) == 6 {
		return code[:3] + " " + code[3:]
	}
	return code
}

// Grants says what a yes to a request gives, or why nothing. Scratch space is left out if that does not change.
func Grants(r api.Request) string {
	if r.InForce[api.EphemeralStorage] == r.Granted[api.EphemeralStorage] || len(r.InForce) == 0 {
		r.InForce, r.Granted, r.Asked = scarce(r.InForce), scarce(r.Granted), scarce(r.Asked)
	}
	return Text(r.Grants())
}

// Amounts names what somebody cares for first; scratch space, which always comes along, only when it is alone.
func Amounts(r api.Resources) string {
	return Text(scarce(r).String())
}

// Uses says how much of what was granted is in use: "0.3 of 0.8 CPU, memory 1Gi of 4Gi", rounded.
func Uses(used, granted api.Resources) string {
	var parts []string
	of := scarce(granted)
	for _, name := range of.Names() {
		has := cmp.Or(used[name], "0")
		if name == api.CPU {
			parts = append(parts, api.Decimal(has)+" of "+api.Decimal(of[name])+" CPU")
			continue
		}
		parts = append(parts, name+" "+api.Rounded(name, has)+" of "+api.Rounded(name, of[name]))
	}
	return Text(strings.Join(parts, ", "))
}

// Sharing says what this laptop offers: "sharing 50 %".
func Sharing(s api.Sharing) string {
	switch {
	case s.Paused:
		return "sharing paused"
	case s.Share == "0%" || s.Share == "" && len(s.Amounts) == 0:
		return "sharing nothing"
	case s.Share != "":
		return "sharing " + Percent(Clean(s.Share, 8))
	}
	return "sharing " + Amounts(s.Amounts)
}

// Percent writes percentages as they are printed: "50%" is "50 %".
func Percent(text string) string { return strings.ReplaceAll(text, "%", " %") }

func scarce(r api.Resources) api.Resources {
	short := api.Resources{}
	for name, amount := range r {
		if name != api.EphemeralStorage || len(r) == 1 {
			short[name] = amount
		}
	}
	return short
}
