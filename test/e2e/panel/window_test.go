//go:build lab

package panel

import (
	"image"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/test/apitest"
	"kith.dev/test/bustest"
)

// dialog is a program that shows the tray's questions: the class of its windows, and how its first button is pressed.
type dialog struct {
	program, class string
	yes            func(s *screen, w image.Rectangle)
}

// lowerRight presses the button in that corner.
func lowerRight(s *screen, w image.Rectangle) { s.click(w.Max.Sub(image.Pt(45, 25))) }

var dialogs = []dialog{
	{"zenity", "zenity", lowerRight},
	{"yad", "yad", lowerRight},
	{"kdialog", "kdialog", func(s *screen, w image.Rectangle) { // a list and OK
		s.tool("xdotool", "key", "Home", "Return")
	}},
	{"xmessage", "xmessage", func(s *screen, w image.Rectangle) { // the last of three, from the left
		s.click(image.Pt(w.Min.X+124, w.Max.Y-13))
	}},
}

// trayWith starts a tray that finds one program for windows and no other.
func (s *screen) trayWith(socket, program string) {
	s.t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		s.t.Fatalf("%s is not installed: scripts/deps.sh does it", program)
	}
	bin := filepath.Join(s.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(bin, program)); err != nil {
		s.t.Fatal(err)
	}
	// One font, whichever the machine has: where the buttons of xmessage are follows from it (X(7), XENVIRONMENT).
	resources := filepath.Join(s.dir, "resources")
	if err := os.WriteFile(resources, []byte("*font: fixed\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	before := s.env
	s.env = append(slices.Clone(s.env), "PATH="+bin, "XENVIRONMENT="+resources)
	s.tray(socket)
	s.env = before
}

// ask clicks a line of the menu as any program on the bus can, and waits for the window that this opens.
func (s *screen) ask(d dialog, part string) (w image.Rectangle) {
	s.t.Helper()
	s.line(part, func(l bustest.Line) bool { return l.Enabled })
	conn, err := dbus.Connect(s.bus)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	lines, menu, err := s.menu(conn)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range lines {
		if strings.Contains(l.Label, part) {
			if err := menu.Event(l.Number, "clicked"); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	return s.window(d.class)
}

// window waits for a window of a class and has the mouse over it, so that it gets what is typed: there is no window manager.
func (s *screen) window(class string) (w image.Rectangle) {
	s.t.Helper()
	s.until("a window of "+class, func() string {
		for _, w = range s.windows(class) {
			if w.Dy() > 60 {
				return ""
			}
		}
		return "there is none"
	})
	time.Sleep(500 * time.Millisecond) // it is being painted, and nobody reads faster
	w = s.windows(class)[0]
	s.tool("xdotool", "mousemove", strconv.Itoa(w.Min.X+8), strconv.Itoa(w.Min.Y+8))
	return w
}

// decide presses the first button of the window that is up.
func (s *screen) decide(picture string) {
	s.t.Helper()
	w := s.window("yad")
	s.picture(picture)
	lowerRight(s, w)
	s.closed("yad")
}

func (s *screen) closed(class string) {
	s.t.Helper()
	s.until("a closed window of "+class, func() string {
		if len(s.windows(class)) > 0 {
			return "it is open"
		}
		return ""
	})
}

// accepted has bob accept what this owner asked.
func accepted(b *apitest.Backend, name string, terms ...string) {
	b.Set(func() {
		p := &b.Known[0]
		p.Name, p.ShortID, p.Addresses = name, "KXJ2A7Q", []string{"192.0.2.12:6450"}
		p.Outgoing, p.Code, p.Confirm = api.StateRequested, "069210", &api.Confirmation{Code: "069210", Terms: terms}
	})
}

// TestWindowsAskThePerson has each program for windows that is here show a question. A click over the bus opens it and does no more;
// Enter and Escape, which somebody may be typing, leave things as they are; its first button confirms.
func TestWindowsAskThePerson(t *testing.T) {
	for _, d := range dialogs {
		if _, err := exec.LookPath(d.program); err != nil && d.program != "yad" && d.program != "xmessage" {
			t.Logf("%s is not installed", d.program) // the other two always are: scripts/deps.sh
			continue
		}
		t.Run(d.program, func(t *testing.T) {
			b, socket := daemon(t)
			s := newScreen(t, "alice")
			s.desk()
			s.trayWith(socket, d.program)
			s.line("bob · nearby", nil)
			accepted(b, `bob \74b\76<b>`, "cpu costs <0.02> EUR an hour & more", "pods may be privileged")
			compare := "accepted · compare the code"
			for _, key := range []string{"Return", "Escape", "space"} {
				s.ask(d, compare)
				s.tool("xdotool", "key", key)
				if d.program == "xmessage" { // it takes no keys
					break
				}
				s.until("a closed window of "+d.program+" after "+key, func() string {
					if key == "space" && d.program == "kdialog" { // which only marks the line that is marked
						s.tool("xdotool", "key", "Escape")
					}
					if len(s.windows(d.class)) > 0 {
						return "it is open"
					}
					return ""
				})
			}
			if calls := strings.Join(b.Called(), "; "); strings.Contains(calls, "Confirm") {
				t.Fatal(calls)
			}
			var w image.Rectangle
			if d.program == "xmessage" {
				w = s.window(d.class) // it is still open
			} else {
				w = s.ask(d, compare)
			}
			s.picture("window")
			d.yes(s, w)
			s.until("the confirmation", func() string {
				calls := strings.Join(b.Called(), "; ")
				if !strings.Contains(calls, "Confirm B 069210 terms=true reject=false") {
					return calls
				}
				return ""
			})
			s.closed(d.class)
			s.waitIcon(icon.Peered)
		})
	}
}

// TestCodeIsConfirmedInTheNotification clicks Confirm there, and They differ.
func TestCodeIsConfirmedInTheNotification(t *testing.T) {
	b, socket := daemon(t)
	s := newScreen(t, "alice")
	s.desk()
	s.tray(socket)
	s.line("bob · nearby", nil)
	for _, test := range []struct{ button, call string }{
		{"Decline", "Confirm B 069210 terms=false reject=true"}, {"Accept", "Confirm B 069210 terms=false reject=false"},
	} {
		accepted(b, "bob")
		s.buttons()
		s.picture("accepted")
		s.answer(test.button)
		s.until(test.call, func() string {
			calls := strings.Join(b.Called(), "; ")
			if !strings.Contains(calls, test.call) {
				return calls
			}
			return ""
		})
		s.closed("xfce4-notifyd")
	}
	s.waitIcon(icon.Peered)
}
