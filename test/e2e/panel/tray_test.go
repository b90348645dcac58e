//go:build lab

package panel

import (
	"fmt"
	"image"
	"image/color"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"kith.dev/assets/icon"
	"kith.dev/test/bustest"
)

// tray starts kith-tray for the daemon behind a socket.
func (s *screen) tray(socket string) (stop func()) {
	s.t.Helper()
	return s.run("kith-tray", "--verbose", "--socket", socket)
}

// colours are those of the icons, by which they are found on the screen.
func colours() map[color.NRGBA]icon.State {
	return map[color.NRGBA]icon.State{
		{0x87, 0x91, 0x9b, 0xff}: icon.Alone, {0x2a, 0x9d, 0x58, 0xff}: icon.Peered, {0x2f, 0x86, 0xdd, 0xff}: icon.Offering,
		{0x9a, 0x63, 0xd8, 0xff}: icon.Tethered, {0xe2, 0x50, 0x2f, 0xff}: icon.Problem,
	}
}

// icon finds the tray's icon in the panel: which colour it has, and where it is. Alone and Gone have the same colour.
func (s *screen) icon() (state icon.State, at image.Point) {
	img, known := s.look(), colours()
	var all image.Rectangle
	count := map[icon.State]int{}
	for y := range barHeight {
		for x := range width {
			if st, is := known[color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)]; is {
				count[st]++
				all = all.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	for st, n := range count {
		if n > count[state] {
			state = st
		}
	}
	if count[state] < 12 {
		return "", image.Point{}
	}
	return state, all.Min.Add(all.Max).Div(2)
}

func (s *screen) waitIcon(want icon.State) image.Point {
	s.t.Helper()
	var at image.Point
	s.until(fmt.Sprintf("an icon that says %s", want), func() string {
		got, where := s.icon()
		at = where
		if got != want {
			return fmt.Sprintf("it says %q", got)
		}
		return ""
	})
	return at
}

// lines reads the menu over D-Bus, as the panel does.
func (s *screen) lines() ([]bustest.Line, error) {
	conn, err := dbus.Connect(s.bus)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	lines, _, err := s.menu(conn)
	return lines, err
}

// menu is the menu of the icon that is registered, and what is in it.
func (s *screen) menu(conn *dbus.Conn) ([]bustest.Line, *bustest.Menu, error) {
	v, err := conn.Object("org.kde.StatusNotifierWatcher", "/StatusNotifierWatcher").GetProperty("org.kde.StatusNotifierWatcher.RegisteredStatusNotifierItems")
	if err != nil {
		return nil, nil, err
	}
	items, _ := v.Value().([]string)
	if len(items) != 1 {
		return nil, nil, fmt.Errorf("%d icons are registered", len(items))
	}
	name, path, _ := strings.Cut(items[0], "/")
	name = strings.TrimSuffix(name, "@") // so GNOME's extension
	menu := bustest.MenuOf(conn, bustest.Item{Name: name, Path: dbus.ObjectPath("/" + path)})
	_, lines, err := menu.Read()
	return lines, menu, err
}

// line waits for a line of the menu that has part in its label, and gives the keys that lead to it in an open menu.
func (s *screen) line(part string, ok func(bustest.Line) bool) (keys []string) {
	s.t.Helper()
	s.until(fmt.Sprintf("a line %q in the menu", part), func() string {
		lines, err := s.lines()
		var all strings.Builder
		keys = nil
		downs := []int{0} // at each depth, how many lines that can be chosen there are up to here
		for _, l := range lines {
			fmt.Fprintln(&all, l)
			if downs = downs[:min(len(downs), l.Depth+1)]; len(downs) == l.Depth {
				downs = append(downs, 0)
			}
			if l.Label != "" && l.Enabled {
				downs[l.Depth]++
			}
			if strings.Contains(l.Label, part) && (ok == nil || ok(l)) {
				for depth, n := range downs {
					if depth > 0 {
						keys, n = append(keys, "Right"), n-1 // opens it, and is at its first line then
					}
					keys = append(keys, slices.Repeat([]string{"Down"}, n)...)
				}
				return ""
			}
		}
		return fmt.Sprintf("%v\n%s", err, &all)
	})
	return keys
}

// open opens the menu with the mouse. A panel that was just started loses a click now and then, as for a user.
func (s *screen) open(state icon.State) image.Rectangle {
	s.t.Helper()
	const clicks = 5
	for try := range clicks {
		s.click(s.waitIcon(state)) // it moves when a panel that was just started puts its clock there
		for range 20 * (try + 1) { // a click too early would shut what opens late
			for _, w := range s.windows("wrapper") {
				if w.Dy() > 3*barHeight {
					s.tool("xdotool", "mousemove", "5", fmt.Sprint(height-5))
					time.Sleep(150 * time.Millisecond) // it is being painted
					return w
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	s.picture("failed")
	s.t.Fatalf("%s: %d clicks on the icon open no menu", s.name, clicks)
	return image.Rectangle{}
}

// choose picks a line of the open menu with the keyboard.
func (s *screen) choose(part, picture string) {
	s.t.Helper()
	for _, key := range s.line(part, func(l bustest.Line) bool { return l.Enabled }) {
		s.tool("xdotool", "key", key)
		if key == "Right" {
			time.Sleep(200 * time.Millisecond) // it is being painted
		}
	}
	time.Sleep(100 * time.Millisecond)
	s.picture(picture)
	s.tool("xdotool", "key", "Return")
}

func (s *screen) shut() {
	s.t.Helper()
	s.tool("xdotool", "key", "Escape")
	s.until("a closed menu", func() string {
		for _, w := range s.windows("wrapper") {
			if w.Dy() > 3*barHeight {
				return "it is open"
			}
		}
		return ""
	})
	s.closedMenu()
}

// closedMenu says for Xfce's panel that the menu was closed: that only asks before it opens it, and what is read over the bus would be as it
// was then until it asks again.
func (s *screen) closedMenu() {
	s.t.Helper()
	conn, err := dbus.Connect(s.bus)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if _, menu, err := s.menu(conn); err != nil {
		s.t.Fatal(err)
	} else if err := menu.Event(0, "closed"); err != nil {
		s.t.Fatal(err)
	}
}

// buttons waits for a notification that has some, and gives the newest.
func (s *screen) buttons() (note image.Rectangle) {
	s.t.Helper()
	s.until("a notification with buttons", func() string {
		for _, w := range s.windows("xfce4-notifyd") {
			if w.Dy() > 110 && (note.Empty() || w.Min.Y < note.Min.Y) {
				note = w
			}
		}
		if note.Empty() {
			return "there is none"
		}
		return ""
	})
	time.Sleep(200 * time.Millisecond) // it is being painted, and moved to its place
	return note
}

// answer clicks a button of the newest notification.
func (s *screen) answer(button string) {
	s.t.Helper()
	// Xfce puts the buttons into the lower right corner, the first one to the left.
	at := s.buttons().Max.Sub(image.Pt(57, 31))
	if button == "Accept" {
		at.X -= 92
	}
	s.click(at)
}
