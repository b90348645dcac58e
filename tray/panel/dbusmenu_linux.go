package panel

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

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

// dbusmenu answers for the menu. Item 0 is the menu itself; all others are its children.
type dbusmenu struct {
	told told // no embedding: what is exported here is exported to the bus
	log  *slog.Logger

	mu       sync.Mutex
	items    []numbered
	numbers  map[string]int32 // of the items there are, by menu.Item.ID
	last     int32            // the highest number given so far
	revision uint32
}

type numbered struct {
	number int32
	menu.Item
}

// set takes another menu. It gives the properties of items that stay and look different, and, unless it is 0, the revision
// of a menu with other items than before.
func (d *dbusmenu) set(next []menu.Item) (changed []itemProps, revision uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := make(map[int32]menu.Item, len(d.items))
	for _, i := range d.items {
		before[i.number] = i.Item
	}
	items, numbers := make([]numbered, 0, len(next)), make(map[string]int32, len(next))
	for _, i := range next {
		number, known := d.numbers[i.ID]
		if !known {
			d.last++
			number = d.last
		}
		if was := before[number]; known && appearance(was) != appearance(i) {
			changed = append(changed, itemProps{number, propertiesOf(i)})
		}
		numbers[i.ID] = number
		items = append(items, numbered{number, i})
	}
	same := slices.EqualFunc(items, d.items, func(a, b numbered) bool { return a.number == b.number })
	d.items, d.numbers = items, numbers
	if same && d.revision > 0 {
		return changed, 0
	}
	d.revision++
	return changed, d.revision
}

// appearance is what of an item can be seen.
func appearance(i menu.Item) menu.Item {
	i.Action = menu.Action{}
	return i
}

func propertiesOf(i menu.Item) map[string]dbus.Variant {
	if i.Separator() {
		return map[string]dbus.Variant{"type": dbus.MakeVariant("separator")}
	}
	all := map[string]dbus.Variant{
		"label":   dbus.MakeVariant(strings.ReplaceAll(i.Label, "_", "__")), // one underlines the next letter
		"enabled": dbus.MakeVariant(!i.Disabled),
	}
	if i.Mark != menu.NoMark {
		state, kind := int32(0), "checkmark"
		if i.On {
			state = 1
		}
		if i.Mark == menu.Radio {
			kind = "radio"
		}
		all["toggle-type"], all["toggle-state"] = dbus.MakeVariant(kind), dbus.MakeVariant(state)
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

// properties gives those of one item.
func (d *dbusmenu) properties(id int32) (map[string]dbus.Variant, bool) {
	if id == 0 {
		return map[string]dbus.Variant{"children-display": dbus.MakeVariant("submenu")}, true
	}
	i, ok := d.find(id)
	return propertiesOf(i.Item), ok
}

// find is called with mu held.
func (d *dbusmenu) find(id int32) (numbered, bool) {
	n := slices.IndexFunc(d.items, func(i numbered) bool { return i.number == id })
	if n < 0 {
		return numbered{}, false
	}
	return d.items[n], true
}

func noItem(id int32) *dbus.Error { return dbus.MakeFailedError(fmt.Errorf("no item %d", id)) }

// GetLayout implements the method of that name.
func (d *dbusmenu) GetLayout(parent, depth int32, names []string) (uint32, layout, *dbus.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, ok := d.properties(parent)
	if !ok {
		return 0, layout{}, noItem(parent)
	}
	out := layout{ID: parent, Properties: only(all, names), Children: []dbus.Variant{}}
	if parent == 0 && depth != 0 {
		for _, i := range d.items {
			out.Children = append(out.Children, dbus.MakeVariant(layout{i.number, only(propertiesOf(i.Item), names), []dbus.Variant{}}))
		}
	}
	return d.revision, out, nil
}

// GetGroupProperties implements the method of that name.
func (d *dbusmenu) GetGroupProperties(ids []int32, names []string) ([]itemProps, *dbus.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []itemProps{}
	if len(ids) == 0 { // means all
		for _, i := range d.items {
			ids = append(ids, i.number)
		}
	}
	for _, id := range ids[:min(len(ids), len(d.items)+1)] {
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == 0 {
		if kind == "opened" {
			d.told.open()
		}
		return nil
	}
	i, ok := d.find(id)
	switch {
	case !ok:
		return noItem(id)
	case kind != "clicked" || i.Disabled || i.Action.Verb == menu.Nothing:
		return nil
	}
	select {
	case d.told.clicks <- i.Action:
	default:
		d.log.Warn("a click was lost: too many at once", "item", i.ID)
	}
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

// AboutToShow implements the method of that name. What is new by then follows by signal.
func (d *dbusmenu) AboutToShow(id int32) (bool, *dbus.Error) {
	if id == 0 {
		d.told.open()
	}
	return false, nil
}

// AboutToShowGroup implements the method of that name.
func (d *dbusmenu) AboutToShowGroup(ids []int32) (updates, unknown []int32, _ *dbus.Error) {
	if slices.Contains(ids, 0) {
		d.told.open()
	}
	return []int32{}, []int32{}, nil
}
