// Package redact takes out of a text what looks like a key, a token or a password, for a bug report that strangers may read. It goes by
// form and by the word before: rather a harmless word too many than a secret too few. What is known to be secret must not come here at
// all; this is for what programs wrote into logs and messages.
package redact

import (
	"bytes"
	"regexp"
	"slices"
)

// Mark stands for what was taken out.
const Mark = "[redacted]"

// rule replaces what matches by text, in which $1 is a part of what matched. It is tried only on lines that may match: those that hold one
// of the words, in any case, and as many letters of base64 in a row. That is a hundred times faster than to try them all.
type rule struct {
	match *regexp.Regexp
	text  string
	words []string
	run   int
}

// secretWord is the end of a name whose value is nobody else's business.
const secretWord = `(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|authorization|cookie|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|signing[-_ ]?key|` +
	`client[-_]key[-_]data|client[-_]certificate[-_]data|certificate[-_]authority[-_]data|key[-_]data|pre[-_]?shared[-_]?key|psk|bearer)`

// secretWords are in every line that secretWord matches.
var secretWords = func() []string {
	words := []string{"pass", "pwd", "secret", "token", "credential", "authorization", "cookie", "psk", "bearer"}
	for _, two := range [][2]string{
		{"api", "key"}, {"access", "key"}, {"private", "key"}, {"signing", "key"}, {"shared", "key"}, {"key", "data"}, {"certificate", "data"}, {"authority", "data"},
	} {
		for _, between := range []string{"", "-", "_", " "} {
			words = append(words, two[0]+between+two[1])
		}
	}
	return words
}()

// blocks are rules for the whole text. PEM (RFC 7468), also in one line with \n for its ends, and cut off at either end; or at both, when
// only its base64 is left, see below.
var blocks = []rule{
	{match: regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]{1,40}-----.*?(?:-----END [A-Z0-9 ]{1,40}-----|\z)`), text: Mark},
	{match: regexp.MustCompile(`(?s)\A(?:[A-Za-z0-9+/=\s]|\\n)*-----END [A-Z0-9 ]{1,40}-----`), text: Mark},
}

// rules are for lines, in this order.
var rules = []rule{
	// JWT (RFC 7519): its header is a JSON object in base64url.
	{regexp.MustCompile(`\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?`), Mark, []string{"ey"}, 10},
	// HTTP: "Authorization: Bearer x", "authorization=Basic x", "bearer x".
	{regexp.MustCompile(`(?i)\b(authorization["']?\s*[:=]\s*["']?(?:[a-z]+\s+)?)[^\s"',;]+`), "${1}" + Mark, []string{"authorization"}, 0},
	{regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9+/_.~=-]{6,}`), "${1}" + Mark, []string{"bearer", "basic"}, 0},
	// https://user:password@host
	{regexp.MustCompile(`(://)[^/\s"'@]*:[^/\s"'@]*@`), "${1}" + Mark + "@", []string{"://"}, 0},
	// password=x, "client-key-data": "x", dbPassword: 'x y', --token x, and JSON in a string: \"token\":\"x\"
	{regexp.MustCompile(`(?i)(` + secretWord + `(?:\\?["'])?\s*[:=]\s*)(?:\\"[^"\\]*\\"|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"',;\\}\])]+)`), "${1}" + Mark, secretWords, 0},
	{regexp.MustCompile(`(?i)(--[a-z-]*` + secretWord + `\s+)[^\s"'-][^\s"']*`), "${1}" + Mark, secretWords, 0},
	// Tokens that say themselves what they are: of kubeadm, GitHub, GitLab, Slack, AWS, npm, Google, OpenAI's kind.
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), Mark, []string{"."}, 16},
	{regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|` +
		`npm_[A-Za-z0-9]{30,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9_-]{20,})`), Mark,
		[]string{"gh", "glpat-", "xox", "akia", "asia", "npm_", "aiza", "ya29.", "sk-"}, 14},
	// A key of 32 bytes in base64, as WireGuard's, and any value of 40 and more after "key" or "data".
	{regexp.MustCompile(`(^|[^A-Za-z0-9+/_-])[A-Za-z0-9+/]{43}=`), "${1}" + Mark, []string{"="}, 43},
	{regexp.MustCompile(`(?i)((?:key|data|cert|hash|salt)[a-z]*(?:\\?["'])?\s*[:=]?\s*(?:\\?["'])?)[A-Za-z0-9+/_-]{40,}={0,2}`), "${1}" + Mark,
		[]string{"key", "data", "cert", "hash", "salt"}, 40},
}

var (
	// long are the lines of a PEM block whose head and foot are not here, and whatever is as long.
	long = regexp.MustCompile(`[A-Za-z0-9+/]{64,}={0,2}`)
	// hexadecimal is not taken for base64: digests of images and contracts are of use, and long.
	hexadecimal = regexp.MustCompile(`\A[0-9a-f]{40,128}\z`)
	// opens is the end of a line whose value is in the next one, as in YAML.
	opens = regexp.MustCompile(`(?i)` + secretWord + `["']?\s*[:=]\s*[|>]?[-+]?\s*$`)
)

// Text gives text without what looks secret. It costs time in proportion to the length of text.
func Text(text []byte) []byte {
	for _, r := range blocks {
		text = r.match.ReplaceAll(text, []byte(r.text))
	}
	out := make([]byte, 0, len(text))
	value := false // this line is the value of the one before
	for line := range bytes.Lines(text) {
		body := bytes.TrimRight(line, "\r\n")
		end := line[len(body):]
		switch small := bytes.ToLower(body); {
		case value && len(bytes.TrimSpace(body)) > 0:
			value = false
			body = append(slices.Clone(body[:len(body)-len(bytes.TrimLeft(body, " \t"))]), Mark...)
		case !value:
			value = holds(small, secretWords) && opens.Match(body)
			body = one(body, small)
		}
		out = append(append(out, body...), end...)
	}
	return out
}

// one gives a line without what looks secret; small is the line in small letters.
func one(line, small []byte) []byte {
	run := longest(line)
	for _, r := range rules {
		if run >= r.run && holds(small, r.words) {
			line = r.match.ReplaceAll(line, []byte(r.text))
		}
	}
	if run < 64 {
		return line
	}
	return long.ReplaceAllFunc(line, func(found []byte) []byte {
		if hexadecimal.Match(bytes.TrimRight(found, "=")) {
			return found
		}
		return []byte(Mark)
	})
}

func holds(line []byte, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(line, []byte(word)) })
}

// longest is the length of the longest row of letters of base64, of both kinds.
func longest(line []byte) (most int) {
	n := 0
	for _, c := range line {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_' {
			n++
			most = max(most, n)
		} else {
			n = 0
		}
	}
	return most
}

// String is Text of a string.
func String(text string) string { return string(Text([]byte(text))) }
