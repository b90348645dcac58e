package panel

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"
	"github.com/godbus/dbus/v5/prop"

	"kith.dev/tray/session"
)

// Panel is one icon with its menu. Make it with New, then Run it once; Show may be called at any time.
type Panel struct {
	told
	conn session.Bus
	log  *slog.Logger

	mu    sync.Mutex
	menu  *dbusmenu
	next  Picture  // as it is to be
	shown Picture  // as the panel has it
	icons []pixmap // of what is shown
}

// New offers the icon on the bus. Nobody sees it before Run.
func New(conn session.Bus, first Picture, log *slog.Logger) (*Panel, error) {
	p := &Panel{told: newTold(), conn: conn, log: log, next: first, shown: first, icons: pixmaps(first.Icon)}
	p.menu = &dbusmenu{told: p.told, log: log, settle: p.settle}
	p.menu.set(first.Items)
	err := errors.Join(
		p.offer(itemPath, itemInterface, notifier{p.told}, itemProperties(first, p.icons), itemSignals),
		p.offer(menuPath, menuInterface, p.menu, map[string]any{
			"Version": uint32(3), "TextDirection": "ltr", "Status": "normal", "IconThemePath": []string{},
		}, menuSignals),
	)
	if err != nil {
		return nil, fmt.Errorf("offer the icon on the session bus: %w", err)
	}
	conn.Answer(menuPath, menuInterface, p.menu)
	// The specification wants the name; no panel that was seen needs it.
	if _, err := conn.RequestName(fmt.Sprintf("org.kde.StatusNotifierItem-%d-1", os.Getpid()), dbus.NameFlagDoNotQueue); err != nil {
		log.Debug("no name for the icon", "err", err)
	}
	return p, nil
}

// offer puts an object on the bus: its methods, its properties, and what introspection says of them.
func (p *Panel) offer(path dbus.ObjectPath, iface string, object any, properties map[string]any, signals []introspect.Signal) error {
	has, err := p.export(path, iface, properties)
	if err != nil {
		return err
	}
	return errors.Join(
		p.conn.Export(object, path, iface),
		p.conn.Export(introspect.NewIntrospectable(&introspect.Node{Name: string(path), Interfaces: []introspect.Interface{
			introspect.IntrospectData, prop.IntrospectData,
			{Name: iface, Methods: introspect.Methods(object), Properties: has.Introspection(iface), Signals: signals},
		}}), path, introspectable),
	)
}

// export answers for properties from now on, in place of those before: prop changes slices in place, while somebody may be reading them.
// The protocols here have signals of their own for changes.
func (p *Panel) export(path dbus.ObjectPath, iface string, values map[string]any) (*prop.Properties, error) {
	all := map[string]*prop.Prop{}
	for name, value := range values {
		all[name] = &prop.Prop{Value: value, Emit: prop.EmitFalse}
	}
	return prop.Export(p.conn.Conn, path, prop.Map{iface: all})
}

// Show makes the panel show something else.
func (p *Panel) Show(next Picture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = next
	p.draw()
}

// settle shows what was held back while the menu was open.
func (p *Panel) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draw()
}

// draw has the panel show what is next. While the menu is open the icon stays as it is: Plasma closes the menu of one that changes or moves.
// It is called with mu held.
func (p *Panel) draw() {
	next := p.next
	if p.menu.isOpen() {
		next = p.shown
		next.Items = p.next.Items
	}
	newIcon, newStatus, newTooltip := next.Icon != p.shown.Icon, next.Attention != p.shown.Attention, next.Tooltip != p.shown.Tooltip
	if newIcon {
		p.icons = pixmaps(next.Icon)
	}
	if newIcon || newStatus || newTooltip {
		if _, err := p.export(itemPath, itemInterface, itemProperties(next, p.icons)); err != nil {
			p.log.Warn("the icon was not changed", "err", err)
		}
	}
	if newIcon {
		p.emit(itemPath, itemInterface+".NewIcon")
		p.emit(itemPath, itemInterface+".NewAttentionIcon")
	}
	if newStatus {
		p.emit(itemPath, itemInterface+".NewStatus", status(next))
	}
	if newTooltip {
		p.emit(itemPath, itemInterface+".NewToolTip")
	}
	p.shown = next
	changed, revision := p.menu.set(p.shown.Items)
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
