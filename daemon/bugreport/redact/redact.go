// Package redact takes out of a text what looks like a key, a token or a password, for a bug report that strangers may read. It goes by
// form and by the word before: rather a harmless word too many than a secret too few. What is known to be secret must not come here at
// all; this is for what programs wrote into logs and messages.
package redact

import (
	"bytes"
	"regexp"
)

// Mark stands for what was taken out.
const Mark = "[redacted]"

// rule replaces what matches by text, in which $1 is a part of what matched.
type rule struct {
	match *regexp.Regexp
	text  string
}

// secretWord is the end of a name whose value is nobody else's business.
const secretWord = `(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|authorization|cookie|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|signing[-_ ]?key|` +
	`client[-_]key[-_]data|client[-_]certificate[-_]data|certificate[-_]authority[-_]data|key[-_]data|pre[-_]?shared[-_]?key|psk|bearer)`

// The rules, in order: whole blocks before the words in them.
var rules = []rule{
	// PEM (RFC 7468), also in one line with \n for its ends, cut off at either end, or both: then only its base64 is left, see below.
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]{1,40}-----.*?(?:-----END [A-Z0-9 ]{1,40}-----|\z)`), Mark},
	{regexp.MustCompile(`(?s)\A(?:[A-Za-z0-9+/=\s]|\\n)*-----END [A-Z0-9 ]{1,40}-----`), Mark},
	// JWT (RFC 7519): its header is a JSON object in base64url.
	{regexp.MustCompile(`\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?`), Mark},
	// HTTP: "Authorization: Bearer x", "authorization=Basic x", "bearer x".
	{regexp.MustCompile(`(?i)\b(authorization["']?\s*[:=]\s*["']?(?:[a-z]+\s+)?)[^\s"',;]+`), "${1}" + Mark},
	{regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9+/_.~=-]{6,}`), "${1}" + Mark},
	// https://user:password@host
	{regexp.MustCompile(`(://)[^/\s"'@]*:[^/\s"'@]*@`), "${1}" + Mark + "@"},
	// password=x, "client-key-data": "x", dbPassword: 'x y', --token x, and JSON in a string: \"token\":\"x\"
	{regexp.MustCompile(`(?i)(` + secretWord + `(?:\\?["'])?\s*[:=]\s*)(?:\\"[^"\\]*\\"|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"',;\\}\])]+)`), "${1}" + Mark},
	{regexp.MustCompile(`(?i)(--[a-z-]*` + secretWord + `\s+)[^\s"'-][^\s"']*`), "${1}" + Mark},
	// Tokens that say themselves what they are: of kubeadm, GitHub, GitLab, Slack, AWS, npm, Google, OpenAI's kind.
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), Mark},
	{regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|` +
		`npm_[A-Za-z0-9]{30,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9_-]{20,})`), Mark},
	// A key of 32 bytes in base64, as WireGuard's, and any value of 40 and more after "key" or "data".
	{regexp.MustCompile(`(^|[^A-Za-z0-9+/_-])[A-Za-z0-9+/]{43}=`), "${1}" + Mark},
	{regexp.MustCompile(`(?i)((?:key|data|cert|hash|salt)[a-z]*(?:\\?["'])?\s*[:=]?\s*(?:\\?["'])?)[A-Za-z0-9+/_-]{40,}={0,2}`), "${1}" + Mark},
	// The lines of a PEM block whose head and foot are not here, and whatever is as long.
	{regexp.MustCompile(`[A-Za-z0-9+/]{64,}={0,2}`), Mark},
}

// hexadecimal is not taken for base64: digests of images and contracts are of use, and long.
var hexadecimal = regexp.MustCompile(`\A[0-9a-f]{40,128}\z`)

// Text gives text without what looks secret. It costs time in proportion to the length of text.
func Text(text []byte) []byte {
	for _, r := range rules[:len(rules)-1] {
		text = r.match.ReplaceAll(text, []byte(r.text))
	}
	last := rules[len(rules)-1]
	return last.match.ReplaceAllFunc(text, func(found []byte) []byte {
		if hexadecimal.Match(bytes.TrimRight(found, "=")) {
			return found
		}
		return []byte(last.text)
	})
}

// String is Text of a string.
func String(text string) string { return string(Text([]byte(text))) }
