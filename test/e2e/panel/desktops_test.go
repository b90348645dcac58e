//go:build lab

package panel

import (
	"image"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// desktop is a panel and the notification server that goes with it.
type desktop struct {
	name    string
	needs   []string // programs
	heavy   bool     // not in the tests that run always: scripts/test.sh panels
	env     []string // beside what every desktop has
	files   map[string]string
	greet   func(s *screen)                        // what its user does first
	start   [][]string                             // programs, first first
	left    bool                                   // the menu opens with the left button, too
	dims    uint8                                  // its panel dims icons by that at most
	inline  bool                                   // submenus open in the menu, by a click
	hasty   bool                                   // its notification server ends when it has had nothing to show for half a minute
	closes  bool                                   // its menus close on their own now and then: only the icon, the menu as it opens and a notification are tried
	unfolds bool                                   // a notification shows its buttons once the mouse is over it
	accept  func(note image.Rectangle) image.Point // where Accept is in a notification with Accept and Decline
}

// desktops are those that were tried, of the tests that run always one. What is not here was not: docs/tray.md says which that are.
var desktops = []desktop{
	{
		name: "xfce", needs: []string{"xfce4-panel"}, left: true,
		env:    []string{"GTK_THEME=Adwaita", "XDG_CURRENT_DESKTOP=XFCE"},
		start:  [][]string{{"/usr/lib/x86_64-linux-gnu/xfce4/notifyd/xfce4-notifyd"}, {"xfce4-panel", "--disable-wm-check"}},
		accept: func(n image.Rectangle) image.Point { return n.Max.Sub(image.Pt(149, 31)) },
	},
}

// raise starts a desktop; without it the test is skipped or, where scripts/deps.sh installs it, fails.
func (d desktop) raise(t *testing.T) *screen {
	t.Helper()
	s := newScreenOf(t, d.name, image.Pt(1024, 900), d.env...)
	s.configure()
	for name, text := range d.files {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range s.env {
		s.env[i] = strings.ReplaceAll(v, "$BUS", s.bus)
	}
	s.tool("xsetroot", "-solid", "#3f5d76")
	s.dims = d.dims
	if d.heavy { // all that they draw is computed
		s.slow = 2 * time.Minute
	}
	for _, args := range d.start {
		s.run(args...)
	}
	s.notified()
	if d.greet != nil {
		d.greet(s)
	}
	return s
}
