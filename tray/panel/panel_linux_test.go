package panel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"kith.dev/assets/icon"
	"kith.dev/test/bustest"
	"kith.dev/tray/menu"
	"kith.dev/tray/panel"
	"kith.dev/tray/session"
)

func item(id, label string) menu.Item {
	return menu.Item{ID: id, Label: label, Action: menu.Action{Verb: menu.Ask, About: id}}
}

// connect is a connection as the tray has it. It is closed with the test.
func connect(t *testing.T, bus *bustest.Bus) session.Bus {
	t.Helper()
	conn, err := session.Connect(func(options ...dbus.ConnOption) (*dbus.Conn, error) { return dbus.Dial(bus.Address, options...) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// start makes a panel that runs until the test ends; ended has what Run gave.
func start(t *testing.T, bus *bustest.Bus, first panel.Picture) (p *panel.Panel, ended chan error) {
	t.Helper()
	p, err := panel.New(connect(t, bus), first, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	done := make(chan struct{})
	go func() { ended <- p.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return p, ended
}

func clicked(t *testing.T, p *panel.Panel) menu.Action {
	t.Helper()
	select {
	case a := <-p.Clicks():
		return a
	case <-time.After(2 * time.Minute):
		t.Fatal("no click came")
		return menu.Action{}
	}
}

func none(t *testing.T, p *panel.Panel) {
	t.Helper()
	select {
	case a := <-p.Clicks():
		t.Fatalf("a click came: %+v", a)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestPanelShowsTheMenuAsItIs(t *testing.T) {
	bus := bustest.Start(t)
	p, _ := start(t, bus, panel.Picture{Icon: icon.Alone, Tooltip: "a <b>", Items: []menu.Item{
		{ID: "head", Label: "under_score", Disabled: true}, {ID: "line"}, item("bob", "bob"),
		{ID: "r", Label: "half", Box: true, On: true, Action: menu.Action{Verb: menu.SetKind, About: "half"}},
		{ID: "more", Label: "more", Items: []menu.Item{item("carol", "carol"), {ID: "most", Label: "most", Items: []menu.Item{item("dave", "dave")}}}},
	}})
	w := bus.Watch(t, 0)
	m := w.Menu(t)
	lines := m.Lines(t)
	if len(lines) != 8 || lines[0].Label != "under__score" || lines[0].Enabled || lines[1].Label != "" || !lines[3].Checked || lines[3].Toggle != "checkmark" ||
		!lines[4].Opens || lines[5].Depth != 1 || !lines[6].Opens || lines[7].Depth != 2 {
		t.Fatal(lines)
	}
	for name, want := range map[string]any{"Id": "kith", "Status": "Active", "ItemIsMenu": true, "Menu": m.Path + "/menu"} {
		if got := m.Property(t, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if tip := fmt.Sprint(m.Property(t, "ToolTip")); !strings.Contains(tip, "a &lt;b&gt;") {
		t.Error(tip)
	}
	sizes := m.Property(t, "IconPixmap").([][]any)
	for i, size := range icon.Sizes() {
		if sizes[i][0] != int32(size) || len(sizes[i][2].([]byte)) != 4*size*size {
			t.Errorf("pixmap %d: %v × %v, %d bytes", i, sizes[i][0], sizes[i][1], len(sizes[i][2].([]byte)))
		}
	}
	m.Click(t, "bob")
	if got := clicked(t, p); got != (menu.Action{Verb: menu.Ask, About: "bob"}) {
		t.Error(got)
	}
	m.Click(t, "dave")
	if got := clicked(t, p); got != (menu.Action{Verb: menu.Ask, About: "dave"}) {
		t.Error(got)
	}
	for _, test := range []struct {
		parent, depth int32
		want          string
	}{{0, 1, "5"}, {0, 0, "0"}, {lines[4].Number, -1, "2"}, {lines[6].Number, 1, "1"}} {
		if got := children(t, m, test.parent, test.depth); got != test.want {
			t.Errorf("below %d to depth %d are %s, want %s", test.parent, test.depth, got, test.want)
		}
	}
	if needs, err := boolOf(m.Call("AboutToShow", int32(0))); err != nil || needs {
		t.Error(needs, err)
	}
	select {
	case <-p.Opened():
	case <-time.After(2 * time.Minute):
		t.Error("nobody was told that the menu opens")
	}
}

func children(t *testing.T, m *bustest.Menu, parent, depth int32) string {
	t.Helper()
	var revision uint32
	var root struct {
		ID         int32
		Properties map[string]dbus.Variant
		Children   []dbus.Variant
	}
	if err := m.Call("GetLayout", parent, depth, []string{"label"}).Store(&revision, &root); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(len(root.Children))
}

// libdbusmenu-gtk asks for a menu in several calls at once, and a submenu stays empty when it hears of what is in it first.
func TestAnswersComeInTheOrderOfTheCalls(t *testing.T) {
	bus := bustest.Start(t)
	var items []menu.Item
	for i := range 200 {
		items = append(items, item(fmt.Sprint(i), strings.Repeat("long ", 50)))
	}
	start(t, bus, panel.Picture{Icon: icon.Alone, Items: items})
	w := bus.Watch(t, 0)
	m := w.Menu(t)
	const calls = 100
	answers := make(chan *dbus.Call, calls)
	var order []*dbus.Call
	for i := range calls { // answers of all sizes
		ids := make([]int32, i*7%199+1)
		for n := range ids {
			ids[n] = int32(n + 1)
		}
		order = append(order, m.Go(answers, "GetGroupProperties", ids, []string{}))
	}
	for i, call := range order {
		got := <-answers
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		if got != call {
			t.Fatalf("answer %d is that to another call", i)
		}
	}
}

// While the menu is open nothing in it comes, goes or moves, and what is gone cannot be clicked; once it is closed it is what is to be
// shown by then.
func TestAnOpenMenuStays(t *testing.T) {
	bus := bustest.Start(t)
	labels := func(m *bustest.Menu) string {
		var all []string
		for _, l := range m.Lines(t) {
			all = append(all, fmt.Sprint(l.Label, l.Enabled))
		}
		return strings.Join(all, " ")
	}
	first := []menu.Item{item("a", "a"), {ID: "more", Label: "more", Items: []menu.Item{item("b", "b"), item("c", "c")}}}
	next := []menu.Item{item("new", "new"), item("a", "a2"), {ID: "more", Label: "more", Items: []menu.Item{item("c", "c"), item("d", "d")}}}
	const was, held, is = "atrue moretrue btrue ctrue", "a2true moretrue bfalse ctrue", "newtrue a2true moretrue ctrue dtrue"
	for name, test := range map[string]struct {
		opens, closes func(m *bustest.Menu)
	}{
		"a panel that says so": {
			func(m *bustest.Menu) { m.Event(0, "opened") }, func(m *bustest.Menu) { m.Event(0, "closed") },
		},
		"one that says so in groups": {
			func(m *bustest.Menu) { m.Call("AboutToShowGroup", []int32{0}); m.EventGroup(0, "opened") }, func(m *bustest.Menu) { m.EventGroup(0, "closed") },
		},
		"one that only asks, and a click": {
			func(m *bustest.Menu) { m.Call("AboutToShow", int32(0)) }, func(m *bustest.Menu) { m.Click(t, "a2") },
		},
		"one that never says that it was closed": {
			func(m *bustest.Menu) { m.Event(0, "opened") },
			func(m *bustest.Menu) {
				time.Sleep(1100 * time.Millisecond) // sooner it is still the same time
				if needs, err := boolOf(m.Call("AboutToShow", int32(0))); err != nil || !needs {
					t.Error("the panel is to read it anew: ", needs, err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := start(t, bus, panel.Picture{Icon: icon.Alone, Items: first})
			w := bus.Watch(t, 0)
			defer w.Close()
			m := w.Menu(t)
			if got := labels(m); got != was {
				t.Fatal(got)
			}
			revision, _, _ := m.Read()
			test.opens(m)
			p.Show(panel.Picture{Icon: icon.Alone, Items: next, Attention: true})
			if now, _, _ := m.Read(); now != revision || labels(m) != held {
				t.Errorf("revision %d, it was %d: %s", now, revision, labels(m))
			}
			if got := m.Property(t, "Status"); got != "Active" { // the icon stays where it is, too
				t.Errorf("the status is %v", got)
			}
			m.Event(m.Lines(t)[2].Number, "clicked") // b
			none(t, p)
			test.closes(m)
			if got := m.Property(t, "Status"); got != "NeedsAttention" {
				t.Errorf("once it is closed the status is %v", got)
			}
			if now, _, _ := m.Read(); now != revision+1 || labels(m) != is {
				t.Errorf("revision %d, it was %d: %s", now, revision, labels(m))
			}
		})
	}
}

func boolOf(call *dbus.Call) (b bool, err error) { return b, call.Store(&b) }

func TestIconThatNeedsAttentionSaysSo(t *testing.T) {
	bus := bustest.Start(t)
	p, _ := start(t, bus, panel.Picture{Icon: icon.Alone})
	m := bus.Watch(t, 0).Menu(t)
	p.Show(panel.Picture{Icon: icon.Peered, Attention: true})
	if got := m.Property(t, "Status"); got != "NeedsAttention" {
		t.Error(got)
	}
	if icon, attention := fmt.Sprint(m.Property(t, "IconPixmap")), fmt.Sprint(m.Property(t, "AttentionIconPixmap")); icon != attention {
		t.Error("a panel would show another icon, or none")
	}
	p.Show(panel.Picture{Icon: icon.Peered})
	if got := m.Property(t, "Status"); got != "Active" {
		t.Error(got)
	}
}

func TestClickMeansWhatWasShownWhenItWasAimed(t *testing.T) {
	bus := bustest.Start(t)
	p, _ := start(t, bus, panel.Picture{Icon: icon.Alone, Items: []menu.Item{item("decline/bob", "Decline bob"), item("accept/eve", "Accept eve")}})
	m := bus.Watch(t, 0).Menu(t)
	before := m.Lines(t)
	p.Show(panel.Picture{Icon: icon.Alone, Items: []menu.Item{item("accept/eve", "Accept eve"), item("accept/mal", "Accept mal")}})
	if err := m.Event(before[0].Number, "clicked"); err == nil {
		t.Error("bob's item is gone, and the panel is not told")
	}
	none(t, p)
	p.Show(panel.Picture{Icon: icon.Alone, Items: []menu.Item{item("accept/mal", "Accept mal"), item("decline/bob", "Decline bob")}})
	for _, l := range m.Lines(t) {
		if l.Number == before[0].Number || l.Number == before[1].Number {
			t.Errorf("%v has the number of another item", l)
		}
	}
}

func TestForgedEventsDoNothing(t *testing.T) {
	bus := bustest.Start(t)
	off := item("off", "off")
	off.Disabled = true
	p, _ := start(t, bus, panel.Picture{Icon: icon.Alone, Items: []menu.Item{off, {ID: "line"}, item("on", "on")}})
	m := bus.Watch(t, 0).Menu(t)
	lines := m.Lines(t)
	for _, number := range []int32{-1, 0, lines[0].Number, lines[1].Number, 99, 1<<31 - 1, -1 << 31} {
		for _, kind := range []string{"clicked", "hovered", "closed", "", strings.Repeat("x", 1<<16)} {
			m.Event(number, kind)
		}
	}
	m.Event(lines[2].Number, "hovered")
	m.Call("Event", "not", "a", "number")
	m.Call("EventGroup", []struct {
		ID   int32
		Kind string
		Data dbus.Variant
		Time uint32
	}{{99, "clicked", dbus.MakeVariant(""), 0}, {lines[0].Number, "clicked", dbus.MakeVariant(""), 0}})
	m.Call("GetLayout", int32(77), int32(-1), []string{})
	m.Call("GetGroupProperties", slices.Repeat([]int32{5}, 1000), []string{})
	none(t, p)
	m.Click(t, "on")
	clicked(t, p)
}

func TestOneMessageForManyChanges(t *testing.T) {
	bus := bustest.Start(t)
	items := func(suffix string) (list []menu.Item) {
		for i := range 60 {
			list = append(list, item(fmt.Sprint(i), fmt.Sprint("peer ", i, suffix)))
		}
		return list
	}
	p, _ := start(t, bus, panel.Picture{Icon: icon.Alone, Items: items("")})
	m := bus.Watch(t, 0).Menu(t)
	listener := bus.Connect(t)
	if err := listener.AddMatchSignal(dbus.WithMatchInterface("com.canonical.dbusmenu")); err != nil {
		t.Fatal(err)
	}
	signals := make(chan *dbus.Signal, 100)
	listener.Signal(signals)
	revision, _, _ := m.Read()
	p.Show(panel.Picture{Icon: icon.Alone, Items: items(" changed")})
	p.Show(panel.Picture{Icon: icon.Alone, Items: items(" changed")}) // nothing new
	p.Show(panel.Picture{Icon: icon.Alone, Items: items(" changed")[1:]})
	m.WaitGone(t, 5*time.Second, "peer 0")
	if now, _, _ := m.Read(); now != revision+1 {
		t.Errorf("revision %d, want %d", now, revision+1)
	}
	var names []string
	for len(signals) > 0 || len(names) < 2 {
		s := <-signals
		names = append(names, s.Name[strings.LastIndex(s.Name, ".")+1:])
	}
	if want := []string{"ItemsPropertiesUpdated", "LayoutUpdated"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// The login race: icon and panel start in any order, the panel slow to answer.
func TestIconIsShownWheneverThePanelComes(t *testing.T) {
	bus := bustest.Start(t)
	for round := range 60 {
		func() {
			began := make(chan struct{})
			var calm atomic.Bool
			defer calm.Store(true)
			for range runtime.GOMAXPROCS(0) - 1 { // a login is a busy time
				go func() {
					for !calm.Load() {
						runtime.Gosched()
					}
				}()
			}
			var w *bustest.Watcher
			go func() {
				defer close(began)
				time.Sleep(time.Duration(round%12) * time.Millisecond)
				w = bus.Watch(t, time.Duration(round%3)*10*time.Millisecond)
			}()
			p, err := panel.New(connect(t, bus), panel.Picture{Icon: icon.Alone, Items: []menu.Item{item("a", "a")}}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			<-began
			w.Menu(t)
			cancel()
			<-ended
			if n := len(w.Registered()); n != 1 {
				t.Errorf("round %d: registered %d times", round, n)
			}
			w.Close()
		}()
	}
}

func TestIconFollowsPanelsThatComeAndGo(t *testing.T) {
	bus := bustest.Start(t)
	p, _ := start(t, bus, panel.Picture{Icon: icon.Alone, Items: []menu.Item{item("a", "a"), {ID: "line"}, item("b", "b")}})
	hosted := func(want bool) {
		t.Helper()
		select {
		case is := <-p.Hosted():
			if is != want {
				t.Fatalf("hosted: %v, want %v", is, want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("not told whether there is a panel")
		}
	}
	hosted(false)
	for range 5 {
		w := bus.Watch(t, 0)
		if lines := w.Menu(t).Lines(t); len(lines) != 3 {
			t.Fatal(lines)
		}
		hosted(true)
		w.Close()
		hosted(false)
	}
}

func TestPanelEndsWithTheBus(t *testing.T) {
	bus := bustest.Start(t)
	p, ended := start(t, bus, panel.Picture{Icon: icon.Alone})
	<-p.Hosted()
	bus.Stop()
	select {
	case err := <-ended:
		if !errors.Is(err, panel.ErrBusGone) {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it stays without a bus")
	}
	p.Show(panel.Picture{Icon: icon.Gone, Tooltip: "x", Items: []menu.Item{item("a", "a")}}) // harmless
}
