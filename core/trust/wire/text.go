package wire

import (
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable reports whether text can be shown on one line as it is: valid UTF-8 without control characters
// and without those that turn the direction of writing.
func Printable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Line makes text showable on one line: at most max bytes, anything else than printable replaced.
func Line(text string, max int) string {
	if Printable(text) && len(text) <= max {
		return text
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > max {
		text = Cut(text, max-len("…")) + "…"
	}
	return text
}

// Visible is the rune as a person can see it: what drives a terminal, turns the direction of writing, breaks a line, is an odd space or
// of private use, or no character at all, becomes U+FFFD.
func Visible(r rune) rune {
	if r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Zs, r) && !unicode.Is(unicode.Co, r) {
		return r
	}
	return unicode.ReplacementChar
}

// Cut takes what is beyond max bytes off a text, and no part of a letter is left.
func Cut(text string, max int) string {
	return strings.ToValidUTF8(text[:min(len(text), max)], "")
}

// Neighbourhood is what counts as one address of somebody who may choose: with IPv6 a /64, of which anybody has 2^64 addresses. It is
// the zero Prefix of an address that is not known.
func Neighbourhood(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits)
	return prefix
}
