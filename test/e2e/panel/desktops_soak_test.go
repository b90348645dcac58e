//go:build lab && (soak || panels)

package panel

import "image"

func init() {
	desktops = append(desktops, []desktop{
		{
			name: "lxqt", needs: []string{"lxqt-panel", "lxqt-notificationd"},
			env: []string{"XDG_CURRENT_DESKTOP=LXQt"},
			files: map[string]string{"config/lxqt/panel.conf": `[General]
panels=panel1

[panel1]
alignment=-1
iconSize=22
lineCount=1
panelSize=32
plugins=spacer, statusnotifier
position=Top
width=100
width-percent=true

[spacer]
expandable=true
type=spacer

[statusnotifier]
alignment=Right
type=statusnotifier
`},
			start:  [][]string{{"lxqt-notificationd"}, {"lxqt-panel"}},
			accept: func(n image.Rectangle) image.Point { return image.Pt(n.Min.X+105, n.Max.Y-41) },
		},
		{
			name: "mate", needs: []string{"mate-panel"}, hasty: true,
			env: []string{"GTK_THEME=Adwaita", "XDG_CURRENT_DESKTOP=MATE", "GSETTINGS_BACKEND=keyfile"},
			files: map[string]string{"config/glib-2.0/settings/keyfile": `[org/mate/panel/general]
toplevel-id-list=['top']
object-id-list=['tray']

[org/mate/panel/toplevels/top]
orientation='top'
size=28
expand=true

[org/mate/panel/objects/tray]
object-type='applet'
applet-iid='NotificationAreaAppletFactory::NotificationArea'
toplevel-id='top'
position=10
panel-right-stick=true
`},
			start:  [][]string{{"/usr/lib/mate-notification-daemon/mate-notification-daemon"}, {"mate-panel"}},
			accept: func(n image.Rectangle) image.Point { return n.Max.Sub(image.Pt(149, 31)) },
		},
	}...)
}
