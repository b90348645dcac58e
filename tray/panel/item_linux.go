package panel

import (
	"bytes"
	"image/color"
	"image/png"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"
	"github.com/godbus/dbus/v5/prop"
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

func itemProperties(first Picture) *properties {
	return &properties{of: map[string]map[string]any{itemInterface: {
		"Category": "ApplicationStatus", "Id": "kith", "Title": "Kith", "Status": status(first), "WindowId": int32(0),
		"IconName": "", "IconPixmap": pixmaps(first.Icon), "IconThemePath": "",
		"OverlayIconName": "", "OverlayIconPixmap": []pixmap{}, "AttentionIconName": "", "AttentionIconPixmap": pixmaps(first.Icon), "AttentionMovieName": "",
		"ToolTip": tooltip{Title: "Kith", Text: escape(first.Tooltip)}, "ItemIsMenu": true, "Menu": menuPath,
	}}}
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

// notifier is the icon's methods. The menu is all there is to it (ItemIsMenu); that Activate is refused makes panels that
// do not look at ItemIsMenu open the menu too.
type notifier struct{}

func (notifier) Activate(_, _ int32) *dbus.Error {
	return dbus.NewError("org.freedesktop.DBus.Error.NotSupported", []any{"the icon has a menu and nothing else"})
}

func (n notifier) SecondaryActivate(x, y int32) *dbus.Error { return n.Activate(x, y) }
func (n notifier) ContextMenu(x, y int32) *dbus.Error       { return n.Activate(x, y) }
func (notifier) Scroll(int32, string) *dbus.Error           { return nil }

// properties is org.freedesktop.DBus.Properties for values that only this process changes. The protocols here have signals
// of their own for changes.
type properties struct {
	mu sync.Mutex
	of map[string]map[string]any // by interface and name
}

func (p *properties) set(iface, name string, value any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[iface][name] = value
}

// Get implements the method of that name.
func (p *properties) Get(iface, name string) (dbus.Variant, *dbus.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	value, ok := p.of[iface][name]
	if !ok {
		return dbus.Variant{}, prop.ErrPropNotFound
	}
	return dbus.MakeVariant(value), nil
}

// GetAll implements the method of that name.
func (p *properties) GetAll(iface string) (map[string]dbus.Variant, *dbus.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]dbus.Variant{}
	for name, value := range p.of[iface] {
		all[name] = dbus.MakeVariant(value)
	}
	return all, nil
}

// Set implements the method of that name.
func (p *properties) Set(string, string, dbus.Variant) *dbus.Error { return prop.ErrReadOnly }

// describe is what introspection answers.
func describe(path dbus.ObjectPath, iface string, object any, p *properties, signals []introspect.Signal) *introspect.Node {
	i := introspect.Interface{Name: iface, Methods: introspect.Methods(object), Signals: signals}
	for name, value := range p.of[iface] {
		i.Properties = append(i.Properties, introspect.Property{Name: name, Type: dbus.SignatureOf(value).String(), Access: "read"})
	}
	return &introspect.Node{Name: string(path), Interfaces: []introspect.Interface{introspect.IntrospectData, prop.IntrospectData, i}}
}

var itemSignals = []introspect.Signal{
	{Name: "NewTitle"}, {Name: "NewIcon"}, {Name: "NewAttentionIcon"}, {Name: "NewToolTip"}, {Name: "NewStatus", Args: []introspect.Arg{{Name: "status", Type: "s"}}},
}
