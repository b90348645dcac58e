package bustest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"
)

const watcherName = "org.kde.StatusNotifierWatcher"

// Watcher is a panel: it takes icons.
type Watcher struct {
	// Items has each icon that was registered: a bus name and a path.
	Items chan Item

	conn *dbus.Conn
	mu   sync.Mutex
	all  []Item
}

// Item is an icon in the panel.
type Item struct {
	Name string
	Path dbus.ObjectPath
}

// Watch starts a panel. late makes it take its name that long before it answers, as one does under load at login.
func (b *Bus) Watch(t testing.TB, late time.Duration) *Watcher {
	t.Helper()
	w := &Watcher{Items: make(chan Item, 16), conn: b.Connect(t)}
	own := func() {
		if reply, err := w.conn.RequestName(watcherName, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
			t.Fatal("no name for the watcher: ", reply, err)
		}
	}
	if late > 0 {
		own()
		time.Sleep(late)
	}
	_, err := prop.Export(w.conn, "/StatusNotifierWatcher", prop.Map{watcherName: {
		"IsStatusNotifierHostRegistered": {Value: true}, "ProtocolVersion": {Value: int32(0)}, "RegisteredStatusNotifierItems": {Value: []string{}},
	}})
	if err == nil {
		err = w.conn.Export(w, "/StatusNotifierWatcher", watcherName)
	}
	if err != nil {
		t.Fatal(err)
	}
	if late == 0 {
		own()
	}
	return w
}

// RegisterStatusNotifierItem implements the method of that name.
func (w *Watcher) RegisterStatusNotifierItem(service string, sender dbus.Sender) *dbus.Error {
	i := Item{Name: service, Path: "/StatusNotifierItem"}
	if strings.HasPrefix(service, "/") {
		i = Item{Name: string(sender), Path: dbus.ObjectPath(service)}
	}
	w.mu.Lock()
	w.all = append(w.all, i)
	w.mu.Unlock()
	w.Items <- i
	return nil
}

// Registered is all that was registered so far, in order.
func (w *Watcher) Registered() []Item {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// Close takes the panel away, as a crash does.
func (w *Watcher) Close() { w.conn.Close() }

// Menu waits for an icon and gives its menu, as a panel sees it.
func (w *Watcher) Menu(t testing.TB) *Menu {
	t.Helper()
	select {
	case i := <-w.Items:
		return &Menu{conn: w.conn, Item: i}
	case <-time.After(10 * time.Second):
		t.Fatal("no icon was registered")
		return nil
	}
}
