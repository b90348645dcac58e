//go:build lab && panels

package panel

import (
	"image"
	"os/exec"
	"testing"
	"time"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
)

// TestServersWithoutButtons has a request told by notification servers that show no buttons. What it says is in the pictures: that the menu
// is where it is answered.
func TestServersWithoutButtons(t *testing.T) {
	for _, server := range []struct{ name, program string }{{"dunst", "dunst"}, {"notify-osd", "/usr/lib/x86_64-linux-gnu/notify-osd"}} {
		t.Run(server.name, func(t *testing.T) {
			if _, err := exec.LookPath(server.program); err != nil {
				t.Skip(server.name, " is not installed")
			}
			b, socket := daemon(t)
			s := newScreen(t, server.name)
			s.tool("xsetroot", "-solid", "#3f5d76")
			s.run(server.program)
			s.run("xfce4-panel", "--disable-wm-check")
			s.notified()
			s.tray(socket)
			s.waitIcon(icon.Alone)
			s.line("bob · nearby", nil)
			before := s.still()
			b.Set(func() {
				b.Pending = []api.Request{{ID: "r1", Peer: "carol", PeerID: "C", Direction: api.Incoming, State: api.StateRequested, Code: "069210",
					Asked: api.Resources{"cpu": "2"}, Granted: api.Resources{"cpu": "2"}, Expires: time.Now().Add(5 * time.Minute)}}
			})
			var note image.Rectangle
			s.until("a notification", func() string {
				if note = differ(before, s.still()); note.Dy() < 60 {
					return note.String()
				}
				return ""
			})
			s.part("request", note)
		})
	}
}
