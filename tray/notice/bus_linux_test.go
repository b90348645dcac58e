package notice

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/test/bustest"
	"kith.dev/tray/words"
)

// notification is what a server got.
type notification struct {
	id, replaces  uint32
	summary, body string
	actions       []string
	hints         map[string]dbus.Variant
	timeout       int32
	closed        bool
	app, appIcon  string
}

// notifications is a notification server, with the methods that the bus calls.
type notifications struct {
	conn *dbus.Conn
	can  []string
	name string
	mu   sync.Mutex
	next uint32
	got  []notification
}

func (s *notifications) GetCapabilities() ([]string, *dbus.Error) { return s.can, nil }

func (s *notifications) GetServerInformation() (name, vendor, version, spec string, _ *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name, "", "", "1.2", nil
}

func (s *notifications) Notify(app string, replaces uint32, appIcon, summary, body string, actions []string, hints map[string]dbus.Variant, timeout int32) (uint32, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := replaces
	if id == 0 {
		s.next++
		id = s.next
	}
	s.got = append(s.got, notification{id, replaces, summary, body, actions, hints, timeout, false, app, appIcon})
	return id, nil
}

func (s *notifications) CloseNotification(id uint32) *dbus.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.got {
		if s.got[i].id == id {
			s.got[i].closed = true
		}
	}
	return nil
}

// wait gives what the server got, when it is n.
func (s *notifications) wait(t *testing.T, n int) []notification {
	t.Helper()
	var got []notification
	until(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got = slices.Clone(s.got)
		return len(got) >= n
	})
	if len(got) != n {
		var titles []string
		for _, g := range got {
			titles = append(titles, g.summary)
		}
		t.Fatalf("%d notifications, want %d: %q", len(got), n, titles)
	}
	return got
}

func (s *notifications) emit(t *testing.T, signal string, body ...any) {
	t.Helper()
	if err := s.conn.Emit(serverPath, server+"."+signal, body...); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within two minutes")
		}
	}
}

// serve starts a notification server.
func serve(t *testing.T, bus *bustest.Bus, first uint32, can ...string) *notifications {
	t.Helper()
	s := &notifications{conn: bus.Connect(t), can: can, next: first}
	if err := s.conn.Export(s, serverPath, server); err != nil {
		t.Fatal(err)
	}
	if reply, err := s.conn.RequestName(server, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return s
}

// running starts a Bus, and gives it with what is clicked.
func running(t *testing.T, bus *bustest.Bus) (*Bus, chan Answer) {
	t.Helper()
	return logged(t, bus, io.Discard)
}

// logged is running, with a log.
func logged(t *testing.T, bus *bustest.Bus, log io.Writer) (*Bus, chan Answer) {
	t.Helper()
	b := NewBus(bus.Connect(t), slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	clicked := make(chan Answer, 8)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, func(a Answer) { clicked <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b, clicked
}

var ask = Notice{Key: "request/r1", Kind: Request, Title: "bob asks", Body: "It asks for cpu 2.", Icon: icon.Offering, About: Subject{Request: "r1"}}

func click(t *testing.T, clicked chan Answer) Answer {
	t.Helper()
	select {
	case a := <-clicked:
		return a
	case <-time.After(2 * time.Minute):
		t.Fatal("no click came through within 5 s")
		return Answer{}
	}
}

func none(t *testing.T, clicked chan Answer) {
	t.Helper()
	select {
	case a := <-clicked:
		t.Fatalf("%+v was taken for an answer", a)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestButtonAnswersOnce(t *testing.T) {
	bus := bustest.Start(t)
	s := serve(t, bus, 0, "actions", "body", "body-markup")
	b, clicked := running(t, bus)
	b.Show(ask)
	n := s.wait(t, 1)[0]
	if !slices.Equal(n.actions, []string{"yes", "Accept", "no", "Decline"}) || n.timeout != 0 || n.app != "Kith" || n.appIcon != "" {
		t.Errorf("%v %v %v %q", n.actions, n.timeout, n.app, n.body)
	}
	if pixels := n.hints["image-data"].Value().([]any); len(pixels) != 7 || pixels[0] != int32(48) || len(pixels[6].([]byte)) != 48*48*4 {
		t.Errorf("the picture is %v wide", pixels[0])
	}
	s.emit(t, "ActionInvoked", n.id+1, "yes")
	s.emit(t, "ActionInvoked", n.id, "default")
	none(t, clicked)
	s.emit(t, "ActionInvoked", n.id, "yes")
	if a := click(t, clicked); a != (Answer{Subject: ask.About, Yes: true}) {
		t.Error(a)
	}
	s.emit(t, "ActionInvoked", n.id, "no")
	none(t, clicked)
	b.Show(ask)
	n = s.wait(t, 2)[1]
	s.emit(t, "ActionInvoked", n.id, "no")
	if a := click(t, clicked); a != (Answer{Subject: ask.About}) {
		t.Error(a)
	}
}

// The buttons of a peer that accepted confirm the code that they stand beside, or open the window in which its terms are.
func TestButtonsOfAnAcceptance(t *testing.T) {
	bus := bustest.Start(t)
	s := serve(t, bus, 0, "actions")
	b, clicked := running(t, bus)
	for i, test := range []struct {
		about   Subject
		buttons []string
	}{
		{Subject{Peer: "B", Code: "069210"}, []string{"yes", "Confirm", "no", "They differ"}},
		{Subject{Peer: "B", Code: "069210", Terms: true}, []string{"yes", "Look…", "no", "Refuse"}},
	} {
		b.Show(Notice{Key: "confirm/B", Kind: Confirm, Title: "bob accepted", About: test.about})
		n := s.wait(t, i+1)[i]
		if !slices.Equal(n.actions, test.buttons) || n.timeout != 0 {
			t.Errorf("%v %v", n.actions, n.timeout)
		}
		s.emit(t, "ActionInvoked", n.id, "yes")
		if a := click(t, clicked); a != (Answer{Subject: test.about, Yes: true}) {
			t.Error(a)
		}
	}
}

// TestForgedClickAcceptsNothing has another program on the bus say that Accept was clicked, in all the ways there are.
func TestForgedClickAcceptsNothing(t *testing.T) {
	bus := bustest.Start(t)
	s := serve(t, bus, 0, "actions")
	b, clicked := running(t, bus)
	b.Show(ask)
	n := s.wait(t, 1)[0]
	until(t, func() bool { return s.conn.Names() != nil })
	forger := bus.Connect(t)
	victim := b.conn.Names()[0]
	forge := func(to, sender, member string, path dbus.ObjectPath, iface string, body ...any) {
		t.Helper()
		m := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(path), dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(member),
		}, Body: body}
		if len(body) > 0 {
			m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
		}
		if to != "" { // to one receiver, whatever it listens to
			m.Headers[dbus.FieldDestination] = dbus.MakeVariant(to)
		}
		if sender != "" {
			m.Headers[dbus.FieldSender] = dbus.MakeVariant(sender)
		}
		if call := forger.Send(m, nil); call != nil && call.Err != nil {
			t.Fatal(call.Err)
		}
	}
	for _, to := range []string{"", victim} {
		for _, sender := range []string{"", s.conn.Names()[0], server} { // the bus puts the true sender in its place
			forge(to, sender, "ActionInvoked", serverPath, server, n.id, "yes")
			forge(to, sender, "ActionInvoked", "/other", server, n.id, "yes")
			forge(to, sender, "ActionInvoked", serverPath, server, "no number", uint32(7))
			forge(to, sender, "ActionInvoked", serverPath, server)
			forge(to, sender, "NotificationClosed", serverPath, server, n.id, uint32(2))
			forge(to, sender, "NameOwnerChanged", "/org/freedesktop/DBus", daemonBus, server, s.conn.Names()[0], forger.Names()[0])
			forge(to, sender, "ActionInvoked", serverPath, server, n.id, "yes")
		}
	}
	if err := forger.BusObject().Call(daemonBus+".GetId", 0).Err; err != nil { // all of it has passed the bus
		t.Fatal(err)
	}
	none(t, clicked)
	s.emit(t, "ActionInvoked", n.id, "yes") // and the true one still counts
	if a := click(t, clicked); a != (Answer{Subject: ask.About, Yes: true}) {
		t.Error(a)
	}
}

func TestBodyIsMarkupOnlyForServersThatTakeIt(t *testing.T) {
	evil := Notice{Key: "x", Kind: PeerLost, Title: words.Name("<b>bob</b>&<img src=x>") + " cannot be reached", Body: words.Text(`<a href="x">click</a> & go`)}
	for _, can := range [][]string{{"body", "body-markup"}, {"body"}} {
		bus := bustest.Start(t)
		s := serve(t, bus, 0, can...)
		b, _ := running(t, bus)
		b.Show(evil)
		n := s.wait(t, 1)[0]
		if n.summary != "‹b›bob‹/b›＆‹img src=x› cannot be reached" {
			t.Errorf("%q", n.summary)
		}
		want := `&lt;a href=&#34;x&#34;&gt;click&lt;/a&gt; &amp; go`
		if len(can) == 1 {
			want = evil.Body
		}
		if n.body != want {
			t.Errorf("with %v: %q", can, n.body)
		}
	}
}

func TestServerWithoutButtonsNamesTheMenu(t *testing.T) {
	bus := bustest.Start(t)
	s := serve(t, bus, 0, "body")
	b, _ := running(t, bus)
	b.Show(ask)
	if n := s.wait(t, 1)[0]; len(n.actions) != 0 || !strings.HasSuffix(n.body, "Accept or decline in Kith's menu.") {
		t.Errorf("%v %v %v %q", n.actions, n.timeout, n.app, n.body)
	}
}

// dunst takes buttons and shows none.
func TestServerThatHidesButtonsNamesTheMenu(t *testing.T) {
	bus := bustest.Start(t)
	s := serve(t, bus, 0, "body", "actions")
	s.mu.Lock()
	s.name = "dunst"
	s.mu.Unlock()
	b, _ := running(t, bus)
	b.Show(ask)
	if n := s.wait(t, 1)[0]; len(n.actions) != 4 || !strings.HasSuffix(n.body, "Accept or decline in Kith's menu.") {
		t.Errorf("%v %q", n.actions, n.body)
	}
}

// What nobody waits for goes by itself, with its one button.
func TestAChangeHasOneButtonAndGoesByItself(t *testing.T) {
	bus := bustest.Start(t)
	s := serve(t, bus, 0, "actions")
	b, clicked := running(t, bus)
	change := &Change{Was: api.Policy{Name: "default", Amounts: api.ShareOf("50%")}, Is: api.Policy{Name: "default"}}
	b.Show(Notice{Key: "sharing/default", Kind: Sharing, Title: "Sharing: 50 % → nothing", About: Subject{Change: change}})
	n := s.wait(t, 1)[0]
	if !slices.Equal(n.actions, []string{"yes", "Undo"}) || n.timeout != -1 {
		t.Errorf("%v %d", n.actions, n.timeout)
	}
	s.emit(t, "ActionInvoked", n.id, "yes")
	if a := click(t, clicked); a.Change != change || !a.Yes {
		t.Error(a)
	}
}

func TestSameKeyTakesThePlaceAndRetractCloses(t *testing.T) {
	bus := bustest.Start(t)
	s := serve(t, bus, 40, "actions")
	b, clicked := running(t, bus)
	b.Show(ask)
	b.Show(ask)
	got := s.wait(t, 2)
	if got[0].id != 41 || got[1].replaces != 41 {
		t.Errorf("%v %q, %v %q", got[0].replaces, got[0].summary, got[1].replaces, got[1].summary)
	}
	b.Retract(ask.Key)
	until(t, func() bool { return s.wait(t, 2)[1].closed })
	s.emit(t, "ActionInvoked", got[1].id, "yes") // too late
	none(t, clicked)
	b.Show(ask)
	if n := s.wait(t, 3)[2]; n.replaces != 0 {
		t.Errorf("it takes the place of %d", n.replaces)
	}
}

func TestNewServerGetsWhatStillWaits(t *testing.T) {
	bus := bustest.Start(t)
	b, clicked := running(t, bus)
	b.Show(ask) // no server at all
	b.Show(Notice{Key: "reach/bob", Kind: PeerLost, Title: "bob cannot be reached"})
	b.Show(Notice{Key: "daemon", Kind: Trouble, Title: "trouble"})
	b.Retract("daemon")
	until(t, func() bool { // all four are done
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.queue) == 0
	})
	time.Sleep(200 * time.Millisecond)
	first := serve(t, bus, 0, "actions")
	got := first.wait(t, 2)
	if got[0].summary != "bob asks" || got[1].summary != "bob cannot be reached" {
		t.Errorf("%v %q, %v %q", got[0].replaces, got[0].summary, got[1].replaces, got[1].summary)
	}
	old := first.conn.Names()[0]
	first.conn.Close()
	second := serve(t, bus, 0, "actions")
	if again := second.wait(t, 1)[0]; again.summary != "bob asks" || again.replaces != 0 {
		t.Errorf("%s was shown again, by %s", again.summary, old)
	}
	second.emit(t, "ActionInvoked", uint32(1), "yes")
	if a := click(t, clicked); a.Request != "r1" {
		t.Error(a)
	}
}

func TestLeavingTakesTheButtonsAway(t *testing.T) {
	bus := bustest.Start(t)
	s := serve(t, bus, 0, "actions")
	b := NewBus(bus.Connect(t), slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, func(Answer) {}) }()
	b.Show(ask)
	s.wait(t, 1)
	cancel()
	if err := <-done; err != nil || !s.wait(t, 1)[0].closed {
		t.Error("its buttons are still there", err)
	}
}

func TestEndOfTheBusEndsRun(t *testing.T) {
	bus := bustest.Start(t)
	b := NewBus(bus.Connect(t), slog.New(slog.NewTextHandler(io.Discard, nil)))
	done := make(chan error, 1)
	go func() { done <- b.Run(t.Context(), func(Answer) {}) }()
	time.Sleep(20 * time.Millisecond)
	b.conn.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(2 * time.Minute):
		t.Error("it goes on")
	}
}
