//go:build lab && panels

package panel

import (
	"fmt"
	"image"
	"time"
)

func init() {
	desktops = append(desktops, desktop{
		name: "gnome", needs: []string{"gnome-shell"}, heavy: true, left: true,
		env: []string{"XDG_CURRENT_DESKTOP=GNOME", "XDG_SESSION_TYPE=x11", "GSETTINGS_BACKEND=keyfile", "LIBGL_ALWAYS_SOFTWARE=1",
			"DBUS_SYSTEM_BUS_ADDRESS=$BUS"}, // it wants one, whatever is there
		files: map[string]string{"config/glib-2.0/settings/keyfile": `[org/gnome/shell]
enabled-extensions=['ubuntu-appindicators@ubuntu.com']
welcome-dialog-last-shown-version='999'

[org/gnome/desktop/interface]
enable-animations=false
`},
		start: [][]string{{"gnome-shell", "--x11"}},
		greet: func(s *screen) { // it begins with the overview, and with words about root and about a missing lock
			calm := 0
			s.until("the desktop", func() string {
				s.point(image.Pt(700, 700+calm))
				img := s.still()
				back, banner := img.At(100, 500), img.At(511, 60)
				if r, _, b, _ := back.RGBA(); b < 2*r {
					calm = 0
					s.tool("xdotool", "key", "super")
					return "the overview is open"
				}
				if calm++; back != banner {
					calm = 0
				}
				if calm < 15 {
					return "something is said"
				}
				return ""
			})
		},
		dims: 12, inline: true, unfolds: true, accept: func(n image.Rectangle) image.Point { return image.Pt(n.Min.X+n.Dx()/4, n.Max.Y-30) },
	}, desktop{
		name: "kde", needs: []string{"plasmashell", "kwin_x11", "kded5"}, heavy: true, left: true, closes: true,
		env:   []string{"XDG_CURRENT_DESKTOP=KDE", "KDE_FULL_SESSION=true", "KDE_SESSION_VERSION=5", "XDG_SESSION_TYPE=x11", "LIBGL_ALWAYS_SOFTWARE=1"},
		start: [][]string{{"kwin_x11"}, {"kded5"}, {"plasmashell", "--no-respawn"}},
		greet: func(s *screen) { // its picture and its widgets come one after the other
			calm, last := 0, s.look()
			s.until("the desktop", func() string {
				time.Sleep(300 * time.Millisecond)
				now := s.look()
				moved := differ(last, now)
				last = now
				if calm++; moved.Dy() > edge || now.At(500, 200) == now.At(500, 700) { // what is small is a clock
					calm = 0
				}
				if calm < 5 {
					return fmt.Sprint("it is being made: ", moved)
				}
				return ""
			})
		},
		accept: func(n image.Rectangle) image.Point { return n.Max.Sub(image.Pt(111, 28)) },
	}, desktop{
		name: "xfce-dark", needs: []string{"xfce4-panel"}, left: true,
		env:    []string{"GTK_THEME=Adwaita:dark", "XDG_CURRENT_DESKTOP=XFCE"},
		start:  desktops[0].start,
		accept: desktops[0].accept,
	})
}
