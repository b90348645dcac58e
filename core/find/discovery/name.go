package discovery

import (
	"strconv"
	"strings"
	"unicode"

	"kith.dev/core/trust/identity"
)

// CleanName makes a name that came from outside safe to show: no control characters, no invisible or
// direction-changing ones, blanks collapsed, at most two accents on a letter, 63 runes and 240 bytes at
// most. It may end up empty.
func CleanName(name string) string {
	if len(name) > 4*maxNameBytes {
		name = name[:4*maxNameBytes]
	}
	var b strings.Builder
	runes, marks, blank := 0, 0, false
	for _, r := range name {
		switch {
		case unicode.IsSpace(r):
			blank = b.Len() > 0
			continue
		case r == unicode.ReplacementChar, !unicode.IsGraphic(r), unicode.Is(unicode.Variation_Selector, r):
			continue // not UTF-8; Cc, Cf (bidi marks, zero width), Co, Cs, Zl, Zp
		case unicode.Is(unicode.M, r):
			if marks++; marks > 2 || b.Len() == 0 {
				continue
			}
		default:
			marks = 0
		}
		size := len(string(r))
		if blank {
			size++
			runes++
		}
		if runes++; runes > maxNameRunes || b.Len()+size > maxNameBytes {
			break
		}
		if blank {
			b.WriteByte(' ')
			blank = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// TXT is the content of the TXT record, the same on the LAN and in the DNS: v=1, id=, name=.
type TXT struct {
	ID   identity.ID
	Name string // for people, cleaned by CleanName
}

// Strings are those of the record.
func (c TXT) Strings() []string {
	return []string{"v=1", "id=" + c.ID.Compact(), "name=" + c.Name}
}

// ParseTXT reads a TXT record (RFC 6763 section 6.4: the first of a key counts, its case does not; unknown
// ones are for a later version). It is not ours without a version, of which a later one says this much, too, and an ID.
func ParseTXT(txt []string) (TXT, bool) {
	var c TXT
	version := 0
	seen := map[string]bool{}
	for i, s := range txt {
		key, value, _ := strings.Cut(s, "=")
		key = strings.ToLower(key)
		if i >= 16 || len(key) > 9 || seen[key] {
			continue
		}
		seen[key] = true
		switch key {
		case "v":
			v, err := strconv.Atoi(value)
			if err != nil || v < 1 || v > 1_000_000 {
				return TXT{}, false
			}
			version = v
		case "id":
			id, err := identity.ParseID(value)
			if err != nil {
				return TXT{}, false
			}
			c.ID = id
		case "name":
			c.Name = CleanName(value)
		}
	}
	if version == 0 || c.ID.IsZero() {
		return TXT{}, false
	}
	if c.Name == "" {
		c.Name = c.ID.Short()
	}
	return c, true
}
