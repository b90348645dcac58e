package notice

import (
	"strings"
	"sync"
	"testing"

	"github.com/esiqveland/notify"
	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"kith.dev/core/api"
	"kith.dev/test/bustest"
)

// xfceSettings are Xfce's, of which one says that its user wants to be left alone.
type xfceSettings struct {
	conn *dbus.Conn
	mu   sync.Mutex
	made bool // the setting was
	is   bool
}

func (s *xfceSettings) GetProperty(channel, name string) (dbus.Variant, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made || channel != xfceChannel || name != xfceQuiet {
		return dbus.Variant{}, dbus.NewError("org.xfce.Xfconf.Error.PropertyNotFound", nil)
	}
	return dbus.MakeVariant(s.is), nil
}

func (s *xfceSettings) set(t *testing.T, is bool) {
	t.Helper()
	s.mu.Lock()
	s.made, s.is = true, is
	s.mu.Unlock()
	if err := s.conn.Emit(xfconfPath, xfconf+".PropertyChanged", xfceChannel, xfceQuiet, dbus.MakeVariant(is)); err != nil {
		t.Fatal(err)
	}
}

// book is a log that tells when something is written into it.
type book struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *book) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *book) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), what)
}

// Who wants to be left alone is, and then asked what still waits for an answer.
func TestWhatWaitsIsShownAgainToWhoWasLeftAlone(t *testing.T) {
	for _, desktop := range []string{"Plasma", xfce} {
		t.Run(desktop, func(t *testing.T) {
			bus := bustest.Start(t)
			s := serve(t, bus, 10, "actions")
			s.name = desktop
			log, heard := &book{}, 0
			var tell func(is bool)
			set := func(is bool) {
				t.Helper()
				tell(is)
				heard++
				until(t, func() bool { return log.count("do not disturb") == heard })
			}
			if desktop == xfce {
				x := &xfceSettings{conn: bus.Connect(t)}
				if err := x.conn.Export(x, xfconfPath, xfconf); err != nil {
					t.Fatal(err)
				}
				if _, err := x.conn.RequestName(xfconf, 0); err != nil {
					t.Fatal(err)
				}
				tell = func(is bool) { x.set(t, is) }
			} else {
				properties, err := prop.Export(s.conn, serverPath, prop.Map{server: {"Inhibited": {Value: false, Emit: prop.EmitTrue}}})
				if err != nil {
					t.Fatal(err)
				}
				tell = func(is bool) { properties.SetMust(server, "Inhibited", is) }
			}
			b, clicked := logged(t, bus, log)
			other := Notice{Key: "reach/B", Kind: PeerLost, Title: "bob cannot be reached"}
			answered := Notice{Key: "request/r2", Kind: Request, Title: "carol asks", About: Subject{Request: "r2"}}
			first := Notice{Key: "request/r0", Kind: Request, Title: "dave asks", About: Subject{Request: "r0"}}
			b.Show(first)
			s.wait(t, 1)
			set(true)
			b.Show(other)
			b.Show(ask)
			b.Show(answered)
			b.Retract(answered.Key) // meanwhile, with kith
			until(t, func() bool { c := s.calls(); return c[len(c)-1].summary == answered.Title && c[len(c)-1].closed })
			n := len(s.calls())
			asked := s.calls()[n-2]
			set(false)
			got := s.wait(t, n+1)[n]
			if got.summary != ask.Title || got.replaces != asked.id || len(got.actions) != 4 {
				t.Errorf("shown again: %+v", got)
			}
			s.emit(t, "ActionInvoked", got.id, "yes")
			if a := click(t, clicked); a.Request != "r1" {
				t.Error(a)
			}
			set(true)
			set(false)
			none(t, clicked)
			s.wait(t, n+1) // and once
		})
	}
}

// calls is what the server got so far.
func (s *notifications) calls() []notification {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]notification(nil), s.got...)
}

// The desktop's do-not-disturb holds for everything: servers let through what is critical.
func TestNoNoticeBreaksThroughDoNotDisturb(t *testing.T) {
	list := []Notice{ask, {Kind: PeerBack, Low: true}, Asks(api.Request{}), Accepts(api.Peer{Confirm: &api.Confirmation{Code: "123456"}})}
	for _, k := range Kinds {
		list = append(list, Notice{Kind: k.Kind}, Notice{Kind: k.Kind, Lasts: true})
	}
	for _, n := range list {
		h := hints(n)
		want := byte(notify.UrgencyNormal)
		if n.Low {
			want = byte(notify.UrgencyLow)
		}
		if got := h["urgency"].Value(); got != want {
			t.Errorf("%+v has urgency %v", n, got)
		}
		if h["desktop-entry"].Value() != "kith-tray" { // as the file is called by which the desktop's settings know the program
			t.Errorf("%v", h["desktop-entry"])
		}
		for _, not := range []string{"transient", "resident"} {
			if _, has := h[not]; has {
				t.Errorf("%+v is %s", n, not)
			}
		}
	}
}
