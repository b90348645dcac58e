package cli

import (
	"strings"

	"kith.dev/core/api"
)

// style colours words, or does not.
type style bool

// style says whether a stream gets colours: a terminal, unless NO_COLOR (no-color.org) or TERM says otherwise.
func (p *program) style(terminal bool) style {
	return style(terminal && p.Getenv("NO_COLOR") == "" && p.Getenv("TERM") != "dumb")
}

func (s style) red(text string) string    { return s.with("31", text) }
func (s style) green(text string) string  { return s.with("32", text) }
func (s style) yellow(text string) string { return s.with("33", text) }
func (s style) bold(text string) string   { return s.with("1", text) }

func (s style) with(code, text string) string {
	if !s || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// word colours a word by what it means for the reader.
func (s style) word(text string) string {
	if strings.HasPrefix(text, "down ") {
		return s.red(text)
	}
	switch text {
	case string(api.StateConnected), string(api.EngineReady), "up", "Running", "Succeeded", "yes", string(api.CheckOK):
		return s.green(text)
	case string(api.StateRequested), string(api.StateContracted), string(api.StateEnding), string(api.EngineStarting),
		string(api.EngineDegraded), string(api.SeverityWarning), "Pending", "paused":
		return s.yellow(text)
	case string(api.StateDeclined), string(api.StateExpired), string(api.StateUnreachable), string(api.EngineStopped),
		string(api.EngineFailed), string(api.SeverityError), "Failed", "Refused", "down", string(api.CheckFail):
		return s.red(text)
	}
	return text
}
