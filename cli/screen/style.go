package screen

import (
	"strings"

	"kith.dev/core/api"
)

// Style colours words, or does not.
type Style bool

func (s Style) Red(text string) string    { return s.with("31", text) }
func (s Style) Green(text string) string  { return s.with("32", text) }
func (s Style) Yellow(text string) string { return s.with("33", text) }
func (s Style) Bold(text string) string   { return s.with("1", text) }

func (s Style) with(code, text string) string {
	if !s || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Padded is Word with spaces up to a width that is counted without colours.
func (s Style) Padded(text string, width int) string {
	return s.Word(text) + strings.Repeat(" ", max(width-Width(text), 0))
}

// Word colours a word by what it means for the reader.
func (s Style) Word(text string) string {
	if strings.HasPrefix(text, "down ") {
		return s.Red(text)
	}
	switch text {
	case string(api.StateConnected), string(api.EngineReady), string(api.EngineAsleep), "up", "Running", "Succeeded", "yes", string(api.CheckOK):
		return s.Green(text)
	case string(api.StateRequested), string(api.StateContracted), string(api.StateEnding), string(api.EngineStarting),
		string(api.EngineDegraded), string(api.SeverityWarning), "Pending", "paused":
		return s.Yellow(text)
	case string(api.StateDeclined), string(api.StateExpired), string(api.StateUnreachable), string(api.EngineStopped),
		string(api.EngineFailed), string(api.SeverityError), "Failed", "Refused", "down", string(api.CheckFail):
		return s.Red(text)
	}
	return text
}
