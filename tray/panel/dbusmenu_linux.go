package panel

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"

	"kith.dev/tray/menu"
)

// Names of Canonical's dbusmenu protocol (libdbusmenu, dbus-menu.xml).
const (
	menuPath      = dbus.ObjectPath("/StatusNotifierItem/menu")
	menuInterface = "com.canonical.dbusmenu"
)

var menuSignals = []introspect.Signal{
	{Name: "ItemsPropertiesUpdated", Args: []introspect.Arg{{Name: "updatedProps", Type: "a(ia{sv})"}, {Name: "removedProps", Type: "a(ias)"}}},
	{Name: "LayoutUpdated", Args: []introspect.Arg{{Name: "revision", Type: "u"}, {Name: "parent", Type: "i"}}},
	{Name: "ItemActivationRequested", Args: []introspect.Arg{{Name: "id", Type: "i"}, {Name: "timestamp", Type: "u"}}},
}

// The shapes that travel.
type (
	layout struct {
		ID         int32
		Properties map[string]dbus.Variant
		Children   []dbus.Variant // of layout
	}
	itemProps struct {
		ID         int32
		Properties map[string]dbus.Variant
	}
	removedProperties struct {
		ID    int32
		Names []string
	}
	event struct {
		ID        int32
		Type      string
		Data      dbus.Variant
		Timestamp uint32
	}
)

// Most panels say when the menu was opened and when it was closed. Xfce's only asks before it shows it, and GNOME's asks at its start, too.
// So what only asked has it open until it asks again, after more than again, or is quiet for long.
const (
	again = time.Second
	quiet = 15 * time.Second
)

// dbusmenu answers for the menu. Entry 0 is the menu itself. While it is open its items stay where they are.
type dbusmenu struct {
	told told // no embedding: what is exported here is exported to the bus
	log  *slog.Logger
	// settle has set called with the menu as it is to be by now. It must not be called with mu held.
	settle func()

	mu       sync.Mutex
	items    []menu.Item // as the panel has them
	entries  map[int32]entry
	numbers  map[string]int32 // of the items there are, by menu.Item.ID
	last     int32            // the highest number given so far
	revision uint32
	opened   time.Time   // when the panel opened the menu; zero: it is closed
	closes   *time.Timer // closes what was only asked about; nil where the panel will say so
}

// entry is an item with the numbers of those in its submenu.
type entry struct {
	menu.Item
	children []int32
}

// set takes another menu, as far as the one that is open lets it. It gives the properties of items that stay and look different, and,
// unless it is 0, the revision of a menu with other items than before.
func (d *dbusmenu) set(next []menu.Item) (changed []itemProps, revision uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.opened.IsZero() {
		next = menu.Hold(d.items, next)
	}
	entries, numbers := map[int32]entry{}, map[string]int32{}
	var put func(number int32, i menu.Item)
	put = func(number int32, i menu.Item) {
		e := entry{Item: i}
		for _, child := range i.Items {
			n, known := d.numbers[child.ID]
			if !known {
				d.last++
				n = d.last
			}
			if was := d.entries[n]; known && appearance(was.Item) != appearance(child) {
				changed = append(changed, itemProps{n, propertiesOf(child)})
			}
			numbers[child.ID] = n
			e.children = append(e.children, n)
			put(n, child)
		}
		entries[number] = e
	}
	put(0, menu.Item{Items: next})
	same := maps.EqualFunc(entries, d.entries, func(a, b entry) bool { return slices.Equal(a.children, b.children) })
	d.items, d.entries, d.numbers = next, entries, numbers
	if same && d.revision > 0 {
		return changed, 0
	}
	d.revision++
	return changed, d.revision
}

// open notes that the menu is about to be looked at; asked: the panel has only asked. It reports whether the panel has to read it anew.
func (d *dbusmenu) open(asked bool) (anew bool) {
	d.mu.Lock()
	before := d.revision
	if !d.opened.IsZero() && time.Since(d.opened) > again { // nobody said that it was closed
		d.mu.Unlock()
		d.close()
		d.mu.Lock()
	}
	if d.opened.IsZero() {
		d.opened = time.Now()
		if asked {
			d.closes = time.AfterFunc(quiet, d.close)
		}
	} else if !asked && d.closes != nil {
		d.closes.Stop()
		d.closes = nil
	}
	anew = d.revision != before
	d.mu.Unlock()
	d.told.open()
	return anew
}

// isOpen reports whether somebody looks at the menu, as far as the panel tells.
func (d *dbusmenu) isOpen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.opened.IsZero()
}

// alive notes that somebody is at the menu.
func (d *dbusmenu) alive() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closes != nil {
		d.closes.Reset(quiet)
	}
}

// close notes that nobody looks at the menu any more.
func (d *dbusmenu) close() {
	d.mu.Lock()
	was := d.opened
	d.opened = time.Time{}
	if d.closes != nil {
		d.closes.Stop()
		d.closes = nil
	}
	d.mu.Unlock()
	if !was.IsZero() {
		d.settle()
	}
}

// seen is what of an item can be seen.
type seen struct {
	label             string
	box, on, disabled bool
	opens             bool
}

func appearance(i menu.Item) seen { return seen{i.Label, i.Box, i.On, i.Disabled, len(i.Items) > 0} }

func propertiesOf(i menu.Item) map[string]dbus.Variant {
	if i.Separator() {
		return map[string]dbus.Variant{"type": dbus.MakeVariant("separator")}
	}
	all := map[string]dbus.Variant{
		"label":   dbus.MakeVariant(strings.ReplaceAll(i.Label, "_", "__")), // one underlines the next letter
		"enabled": dbus.MakeVariant(!i.Disabled),
	}
	if i.Box {
		state := int32(0)
		if i.On {
			state = 1
		}
		all["toggle-type"], all["toggle-state"] = dbus.MakeVariant("checkmark"), dbus.MakeVariant(state)
	}
	if len(i.Items) > 0 {
		all["children-display"] = dbus.MakeVariant("submenu")
	}
	return all
}

// only leaves the named properties; no names leave all.
func only(all map[string]dbus.Variant, names []string) map[string]dbus.Variant {
	if len(names) > 0 {
		maps.DeleteFunc(all, func(name string, _ dbus.Variant) bool { return !slices.Contains(names, name) })
	}
	return all
}

// properties gives those of one item. It is called with mu held, as layout is.
func (d *dbusmenu) properties(id int32) (map[string]dbus.Variant, bool) {
	if id == 0 {
		return map[string]dbus.Variant{"children-display": dbus.MakeVariant("submenu")}, true
	}
	e, ok := d.entries[id]
	return propertiesOf(e.Item), ok
}

// layout gives an item with what is below it, to a depth; all of it where that is negative.
func (d *dbusmenu) layout(id, depth int32, names []string) layout {
	all, _ := d.properties(id)
	out := layout{ID: id, Properties: only(all, names), Children: []dbus.Variant{}}
	if depth == 0 {
		return out
	}
	for _, child := range d.entries[id].children {
		out.Children = append(out.Children, dbus.MakeVariant(d.layout(child, depth-1, names)))
	}
	return out
}

func noItem(id int32) *dbus.Error { return dbus.MakeFailedError(fmt.Errorf("no item %d", id)) }

// GetLayout implements the method of that name.
func (d *dbusmenu) GetLayout(parent, depth int32, names []string) (uint32, layout, *dbus.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.entries[parent]; !ok {
		return 0, layout{}, noItem(parent)
	}
	return d.revision, d.layout(parent, depth, names), nil
}

// GetGroupProperties implements the method of that name.
func (d *dbusmenu) GetGroupProperties(ids []int32, names []string) ([]itemProps, *dbus.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []itemProps{}
	if len(ids) == 0 { // means all
		ids = slices.Sorted(maps.Keys(d.entries))
	}
	for _, id := range ids[:min(len(ids), len(d.entries))] {
		if all, ok := d.properties(id); ok {
			list = append(list, itemProps{id, only(all, names)})
		}
	}
	return list, nil
}

// GetProperty implements the method of that name.
func (d *dbusmenu) GetProperty(id int32, name string) (dbus.Variant, *dbus.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, _ := d.properties(id)
	value, ok := all[name]
	if !ok {
		return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("item %d has no %q", id, name))
	}
	return value, nil
}

// Event implements the method of that name.
func (d *dbusmenu) Event(id int32, kind string, _ dbus.Variant, _ uint32) *dbus.Error {
	switch {
	case id == 0 && kind == "opened":
		d.open(false)
		return nil
	case id == 0 && kind == "closed":
		d.close()
		return nil
	case id == 0:
		return nil
	}
	d.mu.Lock()
	i, ok := d.entries[id]
	d.mu.Unlock()
	switch {
	case !ok:
		return noItem(id)
	case kind != "clicked":
		d.alive()
		return nil
	case i.Disabled || i.Action.Verb == menu.Nothing:
		return nil
	}
	select {
	case d.told.clicks <- i.Action:
	default:
		d.log.Warn("a click was lost: too many at once", "item", i.ID)
	}
	d.close() // with the click
	return nil
}

// EventGroup implements the method of that name.
func (d *dbusmenu) EventGroup(events []event) (unknown []int32, _ *dbus.Error) {
	unknown = []int32{}
	for _, e := range events {
		if d.Event(e.ID, e.Type, e.Data, e.Timestamp) != nil {
			unknown = append(unknown, e.ID)
		}
	}
	return unknown, nil
}

// AboutToShow implements the method of that name.
func (d *dbusmenu) AboutToShow(id int32) (bool, *dbus.Error) {
	if id == 0 {
		return d.open(true), nil
	}
	d.alive()
	return false, nil
}

// AboutToShowGroup implements the method of that name.
func (d *dbusmenu) AboutToShowGroup(ids []int32) (updates, unknown []int32, _ *dbus.Error) {
	updates = []int32{}
	for _, id := range ids {
		if anew, _ := d.AboutToShow(id); anew {
			updates = append(updates, id)
		}
	}
	return updates, []int32{}, nil
}
