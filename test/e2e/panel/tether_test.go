//go:build lab

package panel

import (
	"testing"
	"time"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/test/bustest"
)

// TestTetherByMouse tethers a laptop and takes it back, each by the menu and a window. Its pictures are those of docs/modes.md.
func TestTetherByMouse(t *testing.T) {
	b, socket := daemon(t)
	corp := api.Peer{Name: "corp", ID: "C", ShortID: "kxj2a7q", Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone}
	b.Known = []api.Peer{corp}
	b.Effects = []string{
		"kubectl here asks the cluster of corp, as kith:laptop:alice, in team-a (edit); what is in this laptop's own is out of reach until it is untethered.",
		"corp decides what runs here: it gets all of this laptop that is free, as a node, within its sharing policy.",
		"2 pods of yours run on and keep what they request.",
	}
	s := newScreen(t, "alice")
	s.desk()
	s.trayWith(socket, "yad")
	enabled := func(l bustest.Line) bool { return l.Enabled }
	s.line("Tether this laptop to corp…", enabled)
	t.Log("menu at ", s.open(icon.Alone))
	s.choose("Tether this laptop to corp…", "tether")
	s.press("question")
	s.waitIcon(icon.Tethered)
	b.Set(func() {
		b.Known[0].Pods.Guests, b.State.Counts.Guests, b.State.Tether.Since = 3, 3, time.Date(2026, 3, 2, 9, 0, 0, 0, time.Local)
	})
	s.line("corp ◂ runs this laptop: 3 pods", nil)
	t.Log("menu at ", s.open(icon.Tethered))
	s.choose("Untether…", "tethered")
	s.press("untether")
	s.waitIcon(icon.Alone)
	s.line("Tether this laptop to corp…", enabled)
}

// press shows where the window is that is up, and presses its first button.
func (s *screen) press(picture string) {
	s.t.Helper()
	s.t.Log(picture, " at ", s.window("yad"))
	s.decide(picture)
}
