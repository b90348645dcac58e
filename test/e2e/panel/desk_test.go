//go:build lab

package panel

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
	"kith.dev/test/bustest"
)

// daemon is a kithd that lives in memory: what these tests are about is the panel.
func daemon(t *testing.T) (*apitest.Backend, string) {
	t.Helper()
	b := &apitest.Backend{
		State: api.Status{
			Name: "alice", Mode: api.Autonomous, Engine: api.Engine{Kind: api.EngineBuiltin, State: api.EngineReady, Version: "v1.36.3"},
			Sharing: api.Sharing{Policy: api.DefaultPolicy, Share: "50%"},
		},
		Known: []api.Peer{
			{Name: "bob", ID: "B", Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone},
			{Name: "carol", ID: "C", Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone},
		},
		Shared: []api.Policy{{Name: api.DefaultPolicy, Amounts: api.ShareOf("50%")}},
	}
	return b, apitest.Serve(t, b, localapi.NewBroker(64))
}

// load keeps all processors busy, as a login does.
func load(t *testing.T) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 2 * runtime.NumCPU() {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	t.Cleanup(func() { close(stop); all.Wait() })
}

// TestLoginRace starts panel and tray at the same time, as a login does: the icon must be there each time.
func TestLoginRace(t *testing.T) {
	_, socket := daemon(t)
	s := newScreen(t, "alice")
	s.tool("xdotool", "mousemove", "300", "300")
	load(t)
	rounds := logins
	var slowest time.Duration
	for i := range rounds {
		began := time.Now()
		first, second := func() func() { return s.run("xfce4-panel", "--disable-wm-check") }, func() func() { return s.tray(socket) }
		if i%2 == 1 {
			first, second = second, first
		}
		one := first()
		time.Sleep(time.Duration(i%10) * 60 * time.Millisecond) // all through the panel's start
		two := second()
		s.waitIcon(icon.Alone)
		slowest = max(slowest, time.Since(began))
		one()
		two()
		s.until("an empty bus", func() string {
			if lines, err := s.lines(); err == nil {
				return lines[0].Label
			}
			return ""
		})
	}
	t.Logf("%d of %d starts show the icon, the slowest after %v", rounds, rounds, slowest.Round(time.Millisecond))
}

// TestPanelRestarts ends the panel five times: icon and menu come back whole.
func TestPanelRestarts(t *testing.T) {
	_, socket := daemon(t)
	s := newScreen(t, "alice")
	s.tool("xdotool", "mousemove", "300", "300")
	stop := s.run("xfce4-panel", "--disable-wm-check")
	s.tray(socket)
	var before []bustest.Line
	var heights []int
	for i := range 6 {
		menu := s.open(icon.Alone)
		heights = append(heights, menu.Dy())
		lines, err := s.lines()
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && !slices.Equal(lines, before) {
			t.Errorf("restart %d: the menu is now %v, it was %v", i, lines, before)
		}
		before = lines
		s.picture("menu")
		s.shut()
		if i < 5 {
			stop()
			s.until("no panel", func() string {
				if s, _ := s.icon(); s != "" {
					return "the icon is still there"
				}
				return ""
			})
			stop = s.run("xfce4-panel", "--disable-wm-check")
		}
	}
	if slices.Min(heights) != slices.Max(heights) || heights[0] < 200 {
		t.Errorf("the menu was not always whole: heights %v", heights)
	}
}

// TestRequestInManyWords shows what a hostile peer could make of menu and notification.
func TestRequestInManyWords(t *testing.T) {
	b, socket := daemon(t)
	s := newScreen(t, "alice")
	s.desk()
	s.tray(socket)
	s.waitIcon(icon.Alone)
	s.line("bob · nearby", nil) // what was so when the tray started is no news, so it must have heard that
	names := []string{"<b>bob</b>\n<img src=x>", "\u202Enommis", strings.Repeat("wide", 75), "שלום", "lab 👩\u200D💻"}
	b.Set(func() {
		for i, who := range names {
			b.Known = append(b.Known, api.Peer{Name: who, ID: string(rune('a' + i)), Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone})
		}
		for i, who := range names[:2] {
			b.Pending = append(b.Pending, api.Request{ID: string(rune('a' + i)), Peer: who, PeerID: string(rune('a' + i)), Direction: api.Incoming,
				State: api.StateRequested, Code: "069210", Asked: api.Resources{"cpu": "2", "memory": "4Gi"}, Expires: time.Now().Add(5 * time.Minute)})
		}
	})
	s.until("two notifications", func() string {
		if n := len(s.windows("xfce4-notifyd")); n != 2 {
			return string(rune('0'+n)) + " windows"
		}
		return ""
	})
	time.Sleep(300 * time.Millisecond)
	s.picture("notices")
	s.open(icon.Alone)
	s.picture("words")
	s.shut()
	s.answer("Decline")
	s.until("the request declined", func() string {
		calls := strings.Join(b.Called(), "; ")
		if !strings.Contains(calls, "Decline b") {
			return calls
		}
		return ""
	})
	if calls := strings.Join(b.Called(), "; "); strings.Contains(calls, "Accept") || strings.Contains(calls, "Decline a") {
		t.Error(calls)
	}
}
