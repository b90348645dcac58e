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
	left  *regexp.Regexp // what matched and this matches too is left as it is; nil: nothing
}

// secretWord is a name whose value is nobody else's business, or the end of one.
const secretWord = `(?:(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|authorization|cookie|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|signing[-_ ]?key|` +
	`client[-_]key[-_]data|client[-_]certificate[-_]data|certificate[-_]authority[-_]data|key[-_]data|pre[-_]?shared[-_]?key|psk|bearer)` +
	`(?:[-_]?(?:key|base|value|data|string|hash|text|id|b64|base64))*|\b_?auth)`

// secretWords are in every line that secretWord matches.
var secretWords = func() []string {
	words := []string{"pass", "pwd", "secret", "token", "credential", "auth", "cookie", "psk", "bearer"}
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
	{match: regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]{1,40}-----.*?(?:-----END [A-Z0-9 ]{1,40}-----|\z)`), text: Mark, words: []string{"-----BEGIN "}},
	{match: regexp.MustCompile(`(?s)\A(?:[A-Za-z0-9+/=\s]|\\n)*-----END [A-Z0-9 ]{1,40}-----`), text: Mark, words: []string{"-----END "}},
}

// quoted is a text in quotes, also in a string within strings: "x", \"x\", \\\"x\\\".
const quoted = `(?:\\+"(?:[^"\\]|\\\\.)*\\*"|"(?:[^"\\]|\\.)*"?)`

// ofPods are where programs that run pods, the kubelet, containerd and runc, tell what a pod's owner wrote into its spec, which may be anything: what
// is run and where, images, sources of volumes, what hooks and probes said. A path of the laptop's own, or the reason, is not among it.
var ofPods = []rule{
	// exec: "x": executable file not found in $PATH, exec: "/x": stat /x: no such file or directory, chdir to cwd ("/x"), fork/exec /x: no such file
	{regexp.MustCompile(`(\bexec: )` + quoted + `(: )?(?:(?:stat|lstat|open) .*?(: no such|: permission|: not a|: too many|: is a|: invalid|$))?`), "${1}" + Mark + "${2}${3}", []string{"exec: "}, 0, nil},
	{regexp.MustCompile(`(fork/exec |chdir to cwd )[^:]+`), "${1}" + Mark, []string{"fork/exec ", "chdir to cwd "}, 0, nil},
	// command 'sh -c x' exited with 1: what it said
	{regexp.MustCompile(`(\bcommand ')(?:.*(' exited with \d+)|.*)(?:: .*)?`), "${1}" + Mark + "${2}", []string{"command '"}, 0, nil},
	// What a probe says, unless the kubelet says it.
	{regexp.MustCompile(`(\b[oO]utput(?:\\*")?[=:] ?)` + quoted), "${1}" + Mark, []string{"output"}, 0,
		regexp.MustCompile(`[=:] ?\\*"(?:Get \\*"|dial (?:tcp|udp|unix) |HTTP probe failed|command timed out|timeout|service unhealthy|")`)},
	// What is mounted for a pod: whole, and where the program that mounts says its name, server:/path.
	{regexp.MustCompile(`(Mounting arguments: |Unmounting arguments: ).*?(\\+n|$)`), "${1}" + Mark + "${2}", []string{"ounting arguments: "}, 0, nil},
	{regexp.MustCompile(`((?:\[[0-9A-Fa-f:.%]+\]|\b[A-Za-z0-9][A-Za-z0-9.-]*):)/[^/\s"'\\,;][^\s"'\\,;]*`), "${1}" + Mark, []string{":/"}, 0,
		regexp.MustCompile(`^(?:unix|file|kubernetes\.io|[A-Z][a-z]+[A-Za-z]*):/(?:run|var/lib/kith|var/lib/kubelet|etc|proc|sys|dev|usr)/`)},
}

// ofImages come after those of URLs.
var ofImages = []rule{
	// An image with a user and a password, or a token, which no reference may have and somebody writes all the same: me:x@registry.example/y:1. A digest
	// stands behind an @, too.
	{regexp.MustCompile(`[^\s"'/@=,;(){}<>\[\]\\]+:[^\s"'@\\]+@([A-Za-z0-9\[][A-Za-z0-9.-]*:?)`), Mark + "@${1}", []string{"@"}, 0, digest},
	{regexp.MustCompile(`((?i:image|reference|ref)[A-Za-z]*(?:\\*")?(?:[=: ]|: )(?:\\*")?)[^\s"'/@\\]+@([A-Za-z0-9\[][A-Za-z0-9.-]*:?)`), "${1}" + Mark + "@${2}", []string{"@"}, 0, digest},
}

// digest is where one begins (OCI image specification).
var digest = regexp.MustCompile(`@(?:sha(?:256|384|512)|blake3):$`)

// rules are for lines, in this order.
var rules = slices.Concat(ofPods, []rule{
	// A whole pod or container, as programs in Go print one (%+v, %#v) and as JSON: what it is told is its owner's. Why it did not start is kept.
	{regexp.MustCompile(`((?:EnvVar|Container|PodSpec|PodTemplateSpec|Secret|ConfigMap|Volume|VolumeSource|Probe|ProbeHandler|ExecAction|HTTPGetAction|Lifecycle|LifecycleHandler)\{).*?( start failed in pod .*)?$`), "${1}" + Mark + "${2}",
		[]string{"envvar{", "container{", "podspec{", "podtemplatespec{", "secret{", "configmap{", "volume{", "source{", "probe{", "handler{", "action{", "lifecycle{"}, 0, nil},
	{regexp.MustCompile(`("(?:env|args|command|stringData|data|binaryData|volumes|mountOptions|volumeAttributes|httpHeaders|exec|nfs|cephfs|rbd|iscsi|glusterfs|csi|flexVolume)\\*"\s*:\s*)[\[{].*`), "${1}" + Mark, []string{`"env`, `"args`, `"command`, `"stringdata`, `"data`, `"binarydata`, `"volume`, `"mountoptions`, `"httpheaders`, `"exec`, `"nfs`, `"cephfs`, `"rbd`, `"iscsi`, `"glusterfs`, `"csi`, `"flexvolume`}, 0, nil},
	{regexp.MustCompile(`("value\\*"\s*:\s*)(?:\\+"(?:[^"\\]|\\\\.)*\\*"|"(?:[^"\\]|\\.)*"?)`), "${1}" + Mark, []string{`"value`}, 0, nil},
	// A field that the API server refuses: it says what was in it.
	{regexp.MustCompile(`((?:env|args|command|[dD]ata|annotations)\b[^\s:]*: (?:Invalid|Unsupported) value: |(?:Invalid|Unsupported) value: (?:\\*")?[A-Za-z0-9.]*[{\[]).*`), "${1}" + Mark, []string{" value: "}, 0, nil},
	// What is run in a container, as the kubelet tells of a probe or a hook: cmd="[redis-cli -a x ping]", cmd=["redis-cli","-a"].
	{regexp.MustCompile(`(?i)\b((?:cmd|command|execCommand|argv|args)(?:\\*")?\s*[:=]\s*)(?:"\[(?:[^"\\]|\\.)*"?|\[.*\]|\[.*)`), "${1}" + Mark, []string{"cmd", "command", "argv", "args"}, 0, nil},
	{regexp.MustCompile(`(Exec lifecycle hook \().*?(\) for Container|$)`), "${1}" + Mark + "${2}", []string{"exec lifecycle hook"}, 0, nil},
	// What is base64 of JSON: JWT (RFC 7519), and what registries are told.
	{regexp.MustCompile(`\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?|eyJ[A-Za-z0-9+/_-]{16,}={0,2}`), Mark, []string{"ey"}, 10, nil},
	// HTTP headers, which may be of several words: "Authorization: Bearer x", "authorization=Basic x", "Cookie: a=x; b=y"; and "bearer x".
	{regexp.MustCompile(`(?i)\b((?:authorization|cookie)\\*["']?\s*[:=]\s*)(?:digest\b.*|\[?\\*["'][^"'\\]*|\[.*|[^"'\\\s\[][^"]*)`), "${1}" + Mark, []string{"authorization", "cookie"}, 0, nil},
	{regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9+/_.~=-]{6,}`), "${1}" + Mark, []string{"bearer", "basic"}, 0, nil},
	// https://user:password@host, https://token@host, user:password@tcp(host)
	{regexp.MustCompile(`(://)(?:[^\s"'/@]*:[^\s"']*|[^\s"'/@]+)@`), "${1}" + Mark + "@", []string{"://"}, 0, nil},
	{regexp.MustCompile(`[^\s"'/@]+:[^\s"']*(@(?:tcp|unix)\()`), Mark + "${1}", []string{"@tcp(", "@unix("}, 0, nil},
	// password=x, "client-key-data": "x", dbPassword: 'x y', --token x, and JSON in a string: \"token\":\"x\"
	{regexp.MustCompile(`(?i)(` + secretWord + `(?:\\?["'])?\s*[:=]\s*)(?:\\"[^"\\]*\\"|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"',;\\}\])]+)`), "${1}" + Mark, secretWords, 0, nil},
	{regexp.MustCompile(`(?i)(--[a-z-]*` + secretWord + `\s+)(?:\\"[^"\\]*\\"|"[^"]*"|'[^']*'|[^\s"'\\-][^\s"']*)`), "${1}" + Mark, secretWords, 0, nil},
	{regexp.MustCompile(`\b([A-Z][A-Z0-9_]*_(?:KEY|PW|DSN|CREDS)\s*[:=]\s*)(?:\\"[^"\\]*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"',;\\}\])]+)`), "${1}" + Mark, []string{"_key", "_pw", "_dsn", "_creds"}, 0, nil},
	// Tokens that say themselves what they are: of kubeadm, GitHub, GitLab, Slack, AWS, npm, Google, Vault, Docker, Stripe, age, OpenAI's kind.
	{regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`), Mark, []string{"."}, 16, nil},
	{regexp.MustCompile(`\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|` +
		`npm_[A-Za-z0-9]{30,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|hvs\.[A-Za-z0-9_-]{20,}|dckr_pat_[A-Za-z0-9_-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|` +
		`AGE-SECRET-KEY-[A-Z0-9]{20,}|sk-[A-Za-z0-9_-]{20,})`), Mark,
		[]string{"gh", "glpat-", "xox", "akia", "asia", "npm_", "aiza", "ya29.", "hvs.", "dckr_pat_", "k_live_", "k_test_", "age-secret-key-", "sk-"}, 14, nil},
	// A key of 32 bytes in base64, as WireGuard's, and any value of 40 and more after "key" or "data".
	{regexp.MustCompile(`[A-Za-z0-9+/_-]{43,}=`), Mark, []string{"="}, 43, nil},
	{regexp.MustCompile(`(?i)((?:key|data|cert|hash|salt)[a-z]*(?:\\?["'])?\s*[:=]?\s*(?:\\?["'])?)[A-Za-z0-9+/_-]{40,}={0,2}`), "${1}" + Mark,
		[]string{"key", "data", "cert", "hash", "salt"}, 40, nil},
}, ofImages)

var (
	// query is that of a URL. What is asked may be a command that is run in a pod, or a signature by which a store of images lets in.
	query = regexp.MustCompile(`\?[A-Za-z0-9_.%\[\]~-]+=(?:[^\s"'<>\\]|\\u0026)*`)
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
		if holds(text, r.words) {
			text = r.match.ReplaceAll(text, []byte(r.text))
		}
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

// harmless are what Kubernetes is asked, and how: the values of other keys in a query are taken out.
var harmless = []string{
	"allowWatchBookmarks", "container", "dryRun", "fieldManager", "fieldSelector", "fieldValidation", "follow", "force", "gracePeriodSeconds", "labelSelector", "limit", "pretty",
	"propagationPolicy", "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "stderr", "stdin", "stdout", "tailLines", "timeout", "timeoutSeconds", "tty", "watch",
}

func withoutValues(query []byte) []byte {
	const escaped = `\u0026` // & as JSON has it
	between := []byte("&")
	if bytes.Contains(query, []byte(escaped)) {
		query = bytes.ReplaceAll(query, []byte(escaped), between)
	}
	pairs := bytes.Split(query[1:], between)
	for i, pair := range pairs {
		if key, _, ok := bytes.Cut(pair, []byte("=")); !ok {
			pairs[i] = []byte(Mark) // what was in the value before
		} else if !slices.Contains(harmless, string(key)) {
			pairs[i] = append(append(bytes.Clone(key), '='), Mark...)
		}
	}
	return append([]byte("?"), bytes.Join(pairs, between)...)
}

// on gives a line with what matches replaced.
func (r rule) on(line []byte) []byte {
	if r.left == nil {
		return r.match.ReplaceAll(line, []byte(r.text))
	}
	var out []byte
	end := 0
	for _, at := range r.match.FindAllSubmatchIndex(line, -1) {
		if r.left.Match(line[at[0]:at[1]]) {
			continue
		}
		out = r.match.Expand(append(out, line[end:at[0]]...), []byte(r.text), line, at)
		end = at[1]
	}
	return append(out, line[end:]...)
}

// one gives a line without what looks secret; small is the line in small letters.
func one(line, small []byte) []byte {
	run := longest(line)
	if bytes.IndexByte(small, '?') >= 0 {
		line = query.ReplaceAllFunc(line, withoutValues)
	}
	for _, r := range rules {
		if run >= r.run && holds(small, r.words) {
			line = r.on(line)
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
