package panel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"

	"kith.dev/assets/icon"
	"kith.dev/tray/menu"
)

// Panel is one icon with its menu. Make it with New, then Run it once; Show may be called at any time.
type Panel struct {
	conn *dbus.Conn
	log  *slog.Logger

	mu     sync.Mutex
	item   *properties
	menu   *dbusmenu
	shown  Picture
	hosted chan bool
}

// New offers the icon on the bus. Nobody sees it before Run.
func New(conn *dbus.Conn, first Picture, log *slog.Logger) (*Panel, error) {
	p := &Panel{
		conn: conn, log: log, shown: first,
		menu:   &dbusmenu{log: log, clicks: make(chan menu.Action, 16), opened: make(chan struct{}, 1), numbers: map[string]int32{}},
		item:   itemProperties(first),
		hosted: make(chan bool, 1),
	}
	p.menu.set(first.Items)
	menuProperties := &properties{of: map[string]map[string]any{menuInterface: {
		"Version": uint32(3), "TextDirection": "ltr", "Status": "normal", "IconThemePath": []string{},
	}}}
	err := errors.Join(
		conn.Export(notifier{}, itemPath, itemInterface), conn.Export(p.item, itemPath, propertiesInterface),
		conn.Export(p.menu, menuPath, menuInterface), conn.Export(menuProperties, menuPath, propertiesInterface),
		conn.Export(introspect.NewIntrospectable(describe(itemPath, itemInterface, notifier{}, p.item, itemSignals)), itemPath, introspectable),
		conn.Export(introspect.NewIntrospectable(describe(menuPath, menuInterface, p.menu, menuProperties, menuSignals)), menuPath, introspectable),
	)
	if err != nil {
		return nil, fmt.Errorf("offer the icon on the session bus: %w", err)
	}
	// The specification wants the name; no panel that was seen needs it.
	if _, err := conn.RequestName(fmt.Sprintf("org.kde.StatusNotifierItem-%d-1", os.Getpid()), dbus.NameFlagDoNotQueue); err != nil {
		log.Debug("no name for the icon", "err", err)
	}
	return p, nil
}

// Clicks are what the user clicked. Read them always.
func (p *Panel) Clicks() <-chan menu.Action { return p.menu.clicks }

// Opened tells that the menu is about to be looked at.
func (p *Panel) Opened() <-chan struct{} { return p.menu.opened }

// Hosted tells whether there is a panel that shows the icon, each time that changes, and first when it is known.
func (p *Panel) Hosted() <-chan bool { return p.hosted }

// Show makes the panel show something else.
func (p *Panel) Show(next Picture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next.Icon != p.shown.Icon {
		p.item.set(itemInterface, "IconPixmap", pixmaps(next.Icon))
		p.item.set(itemInterface, "AttentionIconPixmap", pixmaps(next.Icon))
		p.emit(itemPath, itemInterface+".NewIcon")
		p.emit(itemPath, itemInterface+".NewAttentionIcon")
	}
	if next.Attention != p.shown.Attention {
		p.item.set(itemInterface, "Status", status(next))
		p.emit(itemPath, itemInterface+".NewStatus", status(next))
	}
	if next.Tooltip != p.shown.Tooltip {
		p.item.set(itemInterface, "ToolTip", tooltip{Title: "Kith", Text: escape(next.Tooltip)})
		p.emit(itemPath, itemInterface+".NewToolTip")
	}
	p.shown = next
	changed, revision := p.menu.set(next.Items)
	if len(changed) > 0 {
		p.emit(menuPath, menuInterface+".ItemsPropertiesUpdated", changed, []removedProperties{})
	}
	if revision > 0 {
		p.emit(menuPath, menuInterface+".LayoutUpdated", revision, int32(0))
	}
}

func (p *Panel) emit(path dbus.ObjectPath, signal string, values ...any) {
	if err := p.conn.Emit(path, signal, values...); err != nil && !errors.Is(err, dbus.ErrClosed) {
		p.log.Warn("the panel was not told of a change", "signal", signal, "err", err)
	}
}

// Run has the icon shown by whatever panel there is, until ctx ends or the bus goes.
func (p *Panel) Run(ctx context.Context) error { return p.stayRegistered(ctx) }

// pixmaps are the icon in all sizes, so that no panel needs to scale it.
func pixmaps(state icon.State) []pixmap {
	var list []pixmap
	for _, size := range icon.Sizes() {
		list = append(list, pixmapOf(icon.PNG(state, size)))
	}
	return list
}
