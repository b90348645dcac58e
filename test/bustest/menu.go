package bustest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// Menu is the menu of an icon.
type Menu struct {
	Item
	conn *dbus.Conn
}

// Line is an item of the menu.
type Line struct {
	Number  int32
	Label   string // "" for a separator
	Enabled bool
	Checked bool
	Toggle  string // "checkmark"
	Depth   int    // 0 in the menu itself, 1 in a submenu of it
	Opens   bool   // a submenu, of which the lines follow
}

func (l Line) String() string {
	return fmt.Sprintf("%d %q enabled=%v checked=%v", l.Number, l.Label, l.Enabled, l.Checked)
}

// MenuOf is the menu of an icon that somebody else's panel has.
func MenuOf(conn *dbus.Conn, i Item) *Menu { return &Menu{conn: conn, Item: i} }

// Property gives a property of the icon.
func (m *Menu) Property(t testing.TB, name string) any {
	t.Helper()
	v, err := m.conn.Object(m.Name, m.Path).GetProperty("org.kde.StatusNotifierItem." + name)
	if err != nil {
		t.Fatalf("property %s: %v", name, err)
	}
	return v.Value()
}

// Activate clicks the icon as a panel does that opens no menu for it.
func (m *Menu) Activate() error {
	return m.conn.Object(m.Name, m.Path).Call("org.kde.StatusNotifierItem.Activate", 0, int32(1), int32(1)).Err
}

func (m *Menu) object() dbus.BusObject { return m.conn.Object(m.Name, m.Path+"/menu") }

// Call makes a call to the menu.
func (m *Menu) Call(method string, args ...any) *dbus.Call {
	return m.object().Call("com.canonical.dbusmenu."+method, 0, args...)
}

// Go makes a call to the menu and does not wait for the answer, which goes to the channel.
func (m *Menu) Go(answers chan *dbus.Call, method string, args ...any) *dbus.Call {
	return m.object().Go("com.canonical.dbusmenu."+method, 0, answers, args...)
}

type node struct {
	ID         int32
	Properties map[string]dbus.Variant
	Children   []dbus.Variant
}

// Read gets the whole menu, the lines of submenus after the one that opens them.
func (m *Menu) Read() (revision uint32, lines []Line, err error) {
	var root node
	if err := m.Call("GetLayout", int32(0), int32(-1), []string{}).Store(&revision, &root); err != nil {
		return 0, nil, err
	}
	lines, err = read(root, 0)
	return revision, lines, err
}

func read(of node, depth int) (lines []Line, err error) {
	for _, child := range of.Children {
		var n node
		if err := dbus.Store([]any{child.Value()}, &n); err != nil {
			return nil, err
		}
		l := Line{Number: n.ID, Enabled: true, Depth: depth}
		get(n, "label", &l.Label)
		get(n, "enabled", &l.Enabled)
		get(n, "toggle-type", &l.Toggle)
		var state int32
		get(n, "toggle-state", &state)
		l.Checked = state == 1
		var display string
		get(n, "children-display", &display)
		l.Opens = display == "submenu"
		below, err := read(n, depth+1)
		if err != nil {
			return nil, err
		}
		lines = append(append(lines, l), below...)
	}
	return lines, nil
}

func get[T any](n node, name string, into *T) {
	if v, ok := n.Properties[name].Value().(T); ok {
		*into = v
	}
}

// Lines reads the menu.
func (m *Menu) Lines(t testing.TB) []Line {
	t.Helper()
	_, lines, err := m.Read()
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// Wait waits until a line has part in its label, and ok, which may be nil, agrees.
func (m *Menu) Wait(t testing.TB, patience time.Duration, part string, ok func(Line) bool) Line {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		lines := m.Lines(t)
		for _, l := range lines {
			if strings.Contains(l.Label, part) && (ok == nil || ok(l)) {
				return l
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no such line %q after %v in:\n%s", part, patience, show(lines))
		}
	}
}

// WaitGone waits until no line has part in its label.
func (m *Menu) WaitGone(t testing.TB, patience time.Duration, part string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		lines := m.Lines(t)
		if !strings.Contains(show(lines), part) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q is still there after %v in:\n%s", part, patience, show(lines))
		}
	}
}

func show(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}

// Click clicks the line that has part in its label, once it is there and can be clicked.
func (m *Menu) Click(t testing.TB, part string) {
	t.Helper()
	l := m.Wait(t, 10*time.Second, part, func(l Line) bool { return l.Enabled && !l.Opens })
	if err := m.Event(l.Number, "clicked"); err != nil {
		t.Fatalf("click %v: %v", l, err)
	}
}

// Event sends one, as any program on the bus can.
func (m *Menu) Event(number int32, kind string) error {
	return m.Call("Event", number, kind, dbus.MakeVariant(int32(0)), uint32(0)).Err
}

// EventGroup sends one the other way that the protocol has.
func (m *Menu) EventGroup(number int32, kind string) error {
	type event struct {
		ID   int32
		Kind string
		Data dbus.Variant
		Time uint32
	}
	return m.Call("EventGroup", []event{{number, kind, dbus.MakeVariant(int32(0)), 0}}).Err
}
