package panel

import (
	"bytes"
	"image/color"
	"image/png"
	"strings"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"

	"kith.dev/assets/icon"
)

// Names of the protocol: freedesktop.org's StatusNotifierItem as KDE defined it, which all panels speak.
const (
	itemPath            = dbus.ObjectPath("/StatusNotifierItem")
	itemInterface       = "org.kde.StatusNotifierItem"
	propertiesInterface = "org.freedesktop.DBus.Properties"
	introspectable      = "org.freedesktop.DBus.Introspectable"
)

// pixmap is a picture: width, height, and 4 bytes a pixel: alpha, red, green, blue, not premultiplied.
type pixmap struct {
	W, H int32
	Data []byte
}

// tooltip has Text in the subset of HTML that the specification names.
type tooltip struct {
	IconName    string
	Icon        []pixmap
	Title, Text string
}

// itemProperties are the icon's, which only this process changes.
func itemProperties(p Picture, icons []pixmap) map[string]any {
	return map[string]any{
		"Category": "ApplicationStatus", "Id": "kith", "Title": "Kith", "Status": status(p), "WindowId": int32(0),
		"IconName": "", "IconPixmap": icons, "IconThemePath": "",
		"OverlayIconName": "", "OverlayIconPixmap": []pixmap{}, "AttentionIconName": "", "AttentionIconPixmap": icons, "AttentionMovieName": "",
		"ToolTip": tooltip{Title: "Kith", Text: escape(p.Tooltip)}, "ItemIsMenu": true, "Menu": menuPath,
	}
}

// status is what the specification calls so: panels bring an icon that needs attention out of where they hide others.
func status(p Picture) string {
	if p.Attention {
		return "NeedsAttention"
	}
	return "Active"
}

// escape makes text harmless where HTML is understood.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// pixmaps are the icon in all sizes, so that no panel needs to scale it.
func pixmaps(state icon.State) []pixmap {
	var list []pixmap
	for _, size := range icon.Sizes() {
		list = append(list, pixmapOf(icon.PNG(state, size)))
	}
	return list
}

func pixmapOf(b []byte) pixmap {
	in, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		panic("an icon is no PNG: " + err.Error())
	}
	size := in.Bounds().Size()
	out := pixmap{W: int32(size.X), H: int32(size.Y), Data: make([]byte, 0, 4*size.X*size.Y)}
	for y := range size.Y {
		for x := range size.X {
			c := color.NRGBAModel.Convert(in.At(x, y)).(color.NRGBA)
			out.Data = append(out.Data, c.A, c.R, c.G, c.B)
		}
	}
	return out
}

// notifier is the icon's methods. The menu is all there is to it (ItemIsMenu); that Activate is refused makes some panels that
// do not look at ItemIsMenu open the menu too. Those of LXQt and MATE do not: theirs opens with the other mouse button alone.
type notifier struct {
	told told // no embedding: what is exported here is exported to the bus
}

func (n notifier) Activate(_, _ int32) *dbus.Error {
	once(n.told.missed)
	return dbus.NewError("org.freedesktop.DBus.Error.NotSupported", []any{"the icon has a menu and nothing else"})
}

func (n notifier) SecondaryActivate(x, y int32) *dbus.Error { return n.Activate(x, y) }
func (n notifier) ContextMenu(x, y int32) *dbus.Error       { return n.Activate(x, y) }
func (notifier) Scroll(int32, string) *dbus.Error           { return nil }

var itemSignals = []introspect.Signal{
	{Name: "NewTitle"}, {Name: "NewIcon"}, {Name: "NewAttentionIcon"}, {Name: "NewToolTip"}, {Name: "NewStatus", Args: []introspect.Arg{{Name: "status", Type: "s"}}},
}
