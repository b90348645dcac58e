package tray_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
	"kith.dev/test/bustest"
	"kith.dev/tray"
)

const soon = time.Minute

// stage is a desktop with a panel, a tray, and a daemon behind it.
type stage struct {
	bus    *bustest.Bus
	panel  *bustest.Watcher
	menu   *bustest.Menu
	daemon *apitest.Backend
	events *localapi.Broker
	socket string
	ended  chan error // what Start gave
	stop   context.CancelFunc
}

func laptop(name string) api.Peer {
	return api.Peer{
		Name: name, ID: "ID-" + name, ShortID: name, Source: api.SourceLAN, Reachable: true, Outgoing: api.StateNone, Incoming: api.StateNone,
		Tunnel: api.Tunnel{Up: true},
	}
}

func backend() *apitest.Backend {
	return &apitest.Backend{
		State: api.Status{
			Name: "alice", Mode: api.Autonomous, Version: "v1", Engine: api.Engine{Kind: api.EngineBuiltin, State: api.EngineReady},
			Sharing: api.Sharing{Policy: "default", Share: "50%"},
		},
		Known: []api.Peer{laptop("bob")}, Config: []byte("apiVersion: v1\n"),
		Shared: []api.Policy{{Name: "default", Amounts: api.ShareOf("50%")}},
	}
}

// raise starts it all. The test's environment becomes that of the desktop.
func raise(t *testing.T) *stage {
	t.Helper()
	s := &stage{bus: bustest.Start(t), daemon: backend(), events: localapi.NewBroker(64)}
	s.socket = apitest.ServeWith(t, s.daemon, s.events, page{})
	home := t.TempDir()
	for name, value := range map[string]string{
		"DBUS_SESSION_BUS_ADDRESS": s.bus.Address, "XDG_CONFIG_HOME": home + "/config", "XDG_RUNTIME_DIR": home, "HOME": home, "DISPLAY": "", "WAYLAND_DISPLAY": "",
		"PATH": home + "/bin", "KUBECONFIG": "",
	} {
		t.Setenv(name, value)
	}
	s.panel = s.bus.Watch(t, 0)
	s.start(t)
	s.menu = s.panel.Menu(t)
	return s
}

// page says where one would be.
type page struct{}

func (page) Open(_ localapi.Visitor, options api.WebOptions) (api.Web, error) {
	return api.Web{URL: "http://127.0.0.1:4711/#ticket", ReadOnly: options.ReadOnly}, nil
}

func (s *stage) start(t *testing.T) {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.ended = make(chan error, 1)
	done := make(chan struct{})
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	go func() { s.ended <- tray.Start(ctx, s.socket, "v0", log); close(done) }()
	t.Cleanup(func() { s.stop(); <-done })
}

// called waits until the daemon was called so.
func (s *stage) called(t *testing.T, call string) {
	t.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, c := range s.daemon.Called() {
			if strings.HasPrefix(c, call) {
				return
			}
		}
	}
	t.Fatalf("the daemon was not called %q but %q", call, s.daemon.Called())
}

func TestWholeMenuWorks(t *testing.T) {
	s := raise(t)
	s.windows(t)
	m := s.menu
	m.Wait(t, soon, "alice · Autonomous", nil)
	m.Wait(t, soon, "Sharing 50 % …", nil)
	s.daemon.Set(func() { s.daemon.Known = append(s.daemon.Known, laptop("carol")) })
	m.Wait(t, soon, "carol · nearby", nil)

	m.Click(t, "Ask bob for what it gives")
	m.Wait(t, soon, "bob ▸ waits for its owner · code 402 817", nil)
	s.accepts(t, api.Confirmation{Code: "402817"})
	m.Click(t, "bob accepted · compare the code 402 817")
	s.window(t, "bob accepted. Does bob&#39;s screen show this code?")
	s.press(t, "exit 0")
	s.called(t, "Confirm ID-bob 402817 terms=false reject=false")
	s.daemon.Set(func() {
		bob := &s.daemon.Known[0]
		bob.Outgoing, bob.Pods.Abroad, bob.Offered, bob.Used = api.StateConnected, 2, api.Resources{"cpu": "800m"}, api.Resources{"cpu": "300m"}
	})
	m.Wait(t, soon, "bob ▸ you use 0.3 of 0.8 CPU", nil)
	m.Wait(t, soon, "2 pods of yours run there", nil)

	s.ask(t, "Unpeer bob…", "What runs there, 2 pods, starts again where there is room.")
	s.press(t, "exit 1") // later
	s.ask(t, "Unpeer bob…", "End what there is with bob?")
	if calls := strings.Join(s.daemon.Called(), ","); strings.Contains(calls, "Unpeer") {
		t.Error("a click has ended it: ", calls)
	}
	s.press(t, "exit 0")
	s.called(t, "Unpeer ID-bob")
	m.Wait(t, soon, "bob · nearby", nil)

	ask := func(id, peer string) {
		s.daemon.Set(func() {
			s.daemon.Pending = append(s.daemon.Pending, api.Request{
				ID: id, Peer: peer, Direction: api.Incoming, Code: "069210", Granted: api.Resources{"cpu": "1"}, State: api.StateRequested,
			})
		})
	}
	ask("bob-1", "bob")
	ask("carol-1", "carol")
	if first := m.Wait(t, soon, "bob asks · would get cpu 1 · code 069 210", nil); first != m.Lines(t)[0] {
		t.Errorf("%v is not the first line", first)
	}
	m.Click(t, "bob asks")
	s.window(t, "bob asks to use this laptop. Does bob&#39;s screen show this code?")
	s.press(t, "exit 0")
	s.called(t, "Accept bob-1 cpu 1")
	m.WaitGone(t, soon, "bob asks")
	s.ask(t, "carol asks", "carol asks to use this laptop.")
	s.press(t, "echo Decline; exit 1")
	s.called(t, "Decline carol-1")

	m.Click(t, "A peer is back")
	m.Wait(t, soon, "A peer is back", func(l bustest.Line) bool { return !l.Checked })
	settings := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "kith", "notifications.json")
	if b, err := os.ReadFile(settings); err != nil || !strings.Contains(string(b), "peerBack") {
		t.Errorf("%s %v", b, err)
	}
	m.Click(t, "About Kith")
	m.Click(t, "Quit")
	select {
	case err := <-s.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Error("it does not quit")
	}
}

// What is shared is changed in windows alone, and told with what it was and a button that takes it back.
func TestSharingIsChangedInWindowsAndTakenBack(t *testing.T) {
	s := raise(t)
	s.windows(t)
	screen := s.notifications(t)
	with := api.ShareOf("50%")
	with["nvidia.com/gpu"] = "50%"
	s.daemon.Set(func() { s.daemon.Shared[0].Amounts, s.daemon.Shared[0].Generation = with, 1 })
	s.menu.Wait(t, soon, "Sharing 50 % …", nil)
	for range 3 {
		s.forge(t, "Sharing 50 % …") // whoever clicks it: nothing changes
	}
	s.window(t, "Now it is sharing 50 %.")
	time.Sleep(100 * time.Millisecond)
	if calls := strings.Join(s.daemon.Called(), ","); strings.Contains(calls, "SetPolicy") {
		t.Error("a click has changed it: ", calls)
	}
	s.press(t, "echo Nothing; exit 1")
	s.policy(t, func(p api.Policy) bool { return p.Amounts["cpu"] == "0%" && p.Amounts["nvidia.com/gpu"] == "" })
	s.menu.Wait(t, soon, "Sharing nothing …", nil)
	screen.press(t, "Cpu 50 % → 0 %, memory 50 % → 0 %", "yes") // undo
	s.policy(t, func(p api.Policy) bool { return p.Amounts["cpu"] == "50%" && p.Amounts["nvidia.com/gpu"] == "50%" })
	s.daemon.Set(func() { s.daemon.Shared[0].Amounts = api.ShareOf("50%") })

	s.ask(t, "Sharing 50 % …", "How much of this laptop")
	s.press(t, "echo Pause; exit 1")
	s.policy(t, func(p api.Policy) bool { return p.Amounts["cpu"] == "50%" && p.Paused })
	screen.wait(t, "Sharing: paused")
	s.ask(t, "Sharing paused …", "--extra-button=Resume")
	s.press(t, "exit 0") // 100 %
	s.window(t, "Ask you each time somebody wants to use 100 % of this laptop?")
	s.press(t, "exit 0")
	s.policy(t, func(p api.Policy) bool { return p.Amounts["cpu"] == "100%" && !p.Paused })

	// Somebody else changes it, and again before the person at the screen takes that back.
	s.daemon.Set(func() { s.daemon.Shared[0].Amounts, s.daemon.Shared[0].Generation = api.ShareOf("25%"), 20 })
	id := screen.wait(t, "→ 25")
	s.daemon.Set(func() { s.daemon.Shared[0].Amounts, s.daemon.Shared[0].Generation = api.ShareOf("75%"), 21 })
	screen.wait(t, "Sharing: 25 % → 75 %")
	if err := screen.conn.Emit("/org/freedesktop/Notifications", "org.freedesktop.Notifications.ActionInvoked", id, "yes"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	s.policy(t, func(p api.Policy) bool { return p.Amounts["cpu"] == "75%" })
}

func (s *stage) policy(t *testing.T, ok func(api.Policy) bool) {
	t.Helper()
	var p api.Policy
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		s.daemon.Set(func() { p = s.daemon.Shared[0] })
		if ok(p) {
			return
		}
	}
	t.Fatalf("the policy is %+v", p)
}

// script puts a program into the desktop's PATH.
func script(t *testing.T, name, text string) {
	t.Helper()
	bin := os.Getenv("PATH")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// written waits for a file that has part in it.
func written(t *testing.T, path, part string) {
	t.Helper()
	var b []byte
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if b, _ = os.ReadFile(path); strings.Contains(string(b), part) {
			return
		}
	}
	t.Fatalf("%s has %q, not %q", path, b, part)
}

func TestToolsUseThePrograms(t *testing.T) {
	s := raise(t)
	dir := os.Getenv("XDG_RUNTIME_DIR")
	s.daemon.Set(func() {
		s.daemon.Findings = []api.Finding{{Area: "ports", State: api.CheckOK, What: "free"}, {Area: "disk", State: api.CheckFail, What: "full\x1b", Do: "tidy"}}
	})
	script(t, "xterm", "read x < $KUBECONFIG; echo $x > "+dir+"/terminal")
	script(t, "xdg-open", "echo $1 > "+dir+"/opened")
	s.menu.Click(t, "Copy kubeconfig")
	written(t, dir+"/kith/kubeconfig", "apiVersion: v1")
	s.menu.Click(t, "Open terminal here")
	written(t, dir+"/terminal", "apiVersion: v1")
	s.menu.Click(t, "Diagnose…")
	written(t, dir+"/opened", dir+"/kith/diagnosis.txt")
	written(t, dir+"/kith/diagnosis.txt", "fail     disk       full\uFFFD\n                    tidy\n")
	written(t, dir+"/kith/diagnosis.txt", "> Copy kubeconfig")
}

func TestThePageIsOpenedByAClick(t *testing.T) {
	s := raise(t)
	dir := os.Getenv("XDG_RUNTIME_DIR")
	t.Setenv("DISPLAY", ":0")
	script(t, "xdg-open", "echo $1 > "+dir+"/opened")
	s.menu.Click(t, "Open the page…")
	written(t, dir+"/opened", "http://127.0.0.1:4711/#ticket\n")
}

// TestTopIsShown: what pods use, both ways, of one peer; names are a peer's words.
func TestAClickKeepsItAwakeAndAnotherLetsItSleep(t *testing.T) {
	s := raise(t)
	s.menu.Wait(t, soon, "Sharing 50 %", nil)
	s.menu.WaitGone(t, soon, "Keep awake") // for whom
	s.daemon.Set(func() { s.daemon.State.Awake, s.daemon.State.Counts.Guests = &api.Awake{}, 2 })
	s.menu.Click(t, "Keep awake until guests end")
	s.called(t, "KeepAwake {UntilGuestsEnd:true For:0 Off:false}")
	s.menu.Wait(t, soon, "Kept awake until guests end, at the latest", func(l bustest.Line) bool { return l.Checked })
	s.daemon.Set(func() { s.daemon.State.Counts.Guests = 0 })
	s.menu.Click(t, "Kept awake until guests end")
	s.called(t, "KeepAwake {UntilGuestsEnd:false For:0 Off:true}")
	s.menu.WaitGone(t, soon, "wake until")
}

func TestTopIsShown(t *testing.T) {
	s := raise(t)
	dir := os.Getenv("XDG_RUNTIME_DIR")
	cpu := func(used, granted string) (api.Resources, api.Resources) {
		return api.Resources{api.CPU: used, api.Memory: "64Mi"}, api.Resources{api.CPU: granted, api.Memory: "1Gi"}
	}
	abroad, offered := cpu("300m", "800m")
	guests, given := cpu("1", "2")
	s.daemon.Set(func() {
		for i, p := range s.daemon.Known {
			if p.Name == "bob" {
				s.daemon.Known[i].Outgoing, s.daemon.Known[i].Incoming, s.daemon.Known[i].Offered = api.StateConnected, api.StateConnected, offered
			}
		}
		s.daemon.Use = []api.Top{
			{Peer: "bob", Direction: api.Outgoing, Granted: offered, Used: abroad, Pods: []api.TopPod{{Namespace: "shop", Name: "web-0", Used: abroad, Requested: api.Resources{api.CPU: "500m"}}}},
			{Peer: "bob", Direction: api.Incoming, Granted: given, Used: guests, Unknown: "its kubelet\nis busy", Pods: []api.TopPod{{Namespace: "x", Name: "new\x1b[2J"}}},
			{Peer: "carol", Direction: api.Incoming, Granted: given},
		}
	})
	script(t, "xdg-open", "echo $1 > "+dir+"/opened")
	s.menu.Click(t, "See what pods use…")
	written(t, dir+"/opened", dir+"/kith/top.txt")
	file := dir + "/kith/top.txt"
	written(t, file, "\nYours at bob: 0.3 of 0.8 CPU, memory 64Mi of 1Gi\n\nPOD          CPU USED   REQUESTED   MEMORY USED   REQUESTED\nshop/web-0   300m       500m        64Mi          0\n")
	written(t, file, "\nOf bob here: 1 of 2 CPU, memory 64Mi of 1Gi\nits kubelet\uFFFDis busy\n")
	written(t, file, "x/new\uFFFD[2J   -          0           -             0\n")
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "carol") {
		t.Errorf("%s %v", text, err)
	}
	s.daemon.Set(func() { s.daemon.Use = nil })
	s.menu.Click(t, "See what pods use…")
	written(t, file, "There is no contract with bob any more.\n")
}

// quicker is a kithd of which somebody else answers each request first.
type quicker struct{ *apitest.Backend }

func (quicker) Decline(_ context.Context, id string) (api.Request, error) {
	return api.Request{}, api.NotFound("request", id, "kith requests")
}

func TestFailureIsShownInTheMenu(t *testing.T) {
	s := raise(t)
	s.windows(t)
	s.stop()
	<-s.ended
	s.socket = apitest.Serve(t, quicker{s.daemon}, localapi.NewBroker(8))
	s.start(t)
	s.menu = s.panel.Menu(t)
	s.daemon.Set(func() { s.daemon.Pending = []api.Request{{ID: "gone", Peer: "eve", Direction: api.Incoming}} })
	s.ask(t, "eve asks", "eve asks")
	s.press(t, "echo Decline; exit 1")
	s.menu.Wait(t, soon, "the request cannot be answered any more", nil)
}

// A daemon that restarts: the menu says so, and is right again within two seconds of its being back.
func TestMenuIsRightAgainAfterARestartOfTheDaemon(t *testing.T) {
	s := raise(t)
	s.menu.Wait(t, soon, "bob · nearby", nil)
	dir := t.TempDir()
	s.stop()
	<-s.ended
	s.socket = filepath.Join(dir, "s")
	s.start(t)
	s.menu = s.panel.Menu(t)
	for range 3 {
		s.menu.Wait(t, soon, "Kith is not running", nil)
		if got := pixels(t, s.menu); got != len(icon.Sizes()) {
			t.Error(got)
		}
		stop := serve(t, s.socket, s.daemon)
		began := time.Now()
		s.menu.Wait(t, 2*time.Second, "bob · nearby", nil)
		t.Log("right again after ", time.Since(began))
		stop()
	}
}

func pixels(t *testing.T, m *bustest.Menu) int {
	return len(m.Property(t, "IconPixmap").([][]any))
}

// serve serves the local API at socket until stop.
func serve(t *testing.T, socket string, b localapi.Backend) (stop func()) {
	t.Helper()
	server := localapi.New(localapi.Options{Socket: socket, Backend: b, Events: localapi.NewBroker(8), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- server.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestTrayEndsWithTheSession(t *testing.T) {
	s := raise(t)
	s.bus.Stop()
	select {
	case err := <-s.ended:
		if err == nil || !strings.Contains(err.Error(), "session bus") {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Error("it stays")
	}
}

func TestSecondStartIsDoneAtOnce(t *testing.T) {
	s := raise(t)
	s.menu.Wait(t, soon, "alice", nil)
	if err := tray.Start(t.Context(), s.socket, "v0", slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if n := len(s.panel.Registered()); n != 1 {
		t.Errorf("%d icons", n)
	}
}

func TestOpeningTheMenuLooksAnew(t *testing.T) {
	s := raise(t)
	s.menu.Wait(t, soon, "bob · nearby", nil)
	before := strings.Count(strings.Join(s.daemon.Called(), "\n"), "Snapshot")
	if err := s.menu.Event(0, "opened"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		if strings.Count(strings.Join(s.daemon.Called(), "\n"), "Snapshot") > before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody looked")
		}
	}
}

// In the panels of LXQt and MATE a click on the icon opens nothing: somebody who tries is told what does. Where a menu comes up there is
// nothing to be told.
func TestAClickThatOpensNoMenuIsAnswered(t *testing.T) {
	s := raise(t)
	screen := s.notifications(t)
	s.menu.Wait(t, soon, "alice · Autonomous", nil)
	if err := s.menu.Activate(); err == nil {
		t.Error("a panel that opens the menu when Activate is refused does not now")
	}
	screen.wait(t, "in some panels with the other mouse button")
	screen.mu.Lock()
	screen.shown = nil
	screen.mu.Unlock()
	s.menu.Activate()
	s.menu.Event(0, "opened")
	time.Sleep(1500 * time.Millisecond) // a second is what a panel is given
	s.menu.Click(t, "About Kith")
	screen.wait(t, "The laptops around you")
	screen.mu.Lock()
	defer screen.mu.Unlock()
	if said := strings.Join(screen.shown, "\n"); strings.Contains(said, "mouse button") {
		t.Error(said)
	}
}

func TestOnceNeedsNoDesktop(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	text, err := tray.Once(t.Context(), apitest.Serve(t, backend(), localapi.NewBroker(8)))
	if err != nil || !strings.Contains(text, "> bob · nearby") {
		t.Error(text, err)
	}
	text, err = tray.Once(t.Context(), "/nonexistent/socket")
	if !errors.Is(err, &api.Error{Code: api.CodeUnavailable}) || !strings.Contains(text, "Kith is not running") {
		t.Error(text, err)
	}
}

// notifications is a server that shows nothing.
type notifications struct {
	conn  *dbus.Conn
	mu    sync.Mutex
	shown []string // title and body; the number of each is its place, from 1
}

func (n *notifications) Notify(_ string, _ uint32, _, title, body string, _ []string, _ map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shown = append(n.shown, title+"\n"+body)
	return uint32(len(n.shown)), nil
}
func (*notifications) CloseNotification(uint32) *dbus.Error { return nil }
func (*notifications) GetCapabilities() ([]string, *dbus.Error) {
	return []string{"body", "actions"}, nil
}
func (*notifications) GetServerInformation() (string, string, string, string, *dbus.Error) {
	return "test", "kith", "1", "1.2", nil
}

// notifications puts a notification server on the bus.
func (s *stage) notifications(t *testing.T) *notifications {
	t.Helper()
	n := &notifications{conn: s.bus.Connect(t)}
	if err := n.conn.Export(n, "/org/freedesktop/Notifications", "org.freedesktop.Notifications"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.conn.RequestName("org.freedesktop.Notifications", 0); err != nil {
		t.Fatal(err)
	}
	return n
}

// wait waits for a notification that has part in it, and gives the number of the newest.
func (n *notifications) wait(t *testing.T, part string) (id uint32) {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		n.mu.Lock()
		said := strings.Join(n.shown, "\n")
		for i, text := range n.shown {
			if strings.Contains(text, part) {
				id = uint32(i + 1)
			}
		}
		n.mu.Unlock()
		if id != 0 {
			return id
		}
		if time.Now().After(end) {
			t.Fatalf("on the screen is %q, not %q", said, part)
		}
	}
}

// press presses a button of the notification that has part in it.
func (n *notifications) press(t *testing.T, part, button string) {
	t.Helper()
	id := n.wait(t, part)
	if err := n.conn.Emit("/org/freedesktop/Notifications", "org.freedesktop.Notifications.ActionInvoked", id, button); err != nil {
		t.Fatal(err)
	}
}

func TestSecondStartIsAnsweredOnTheScreen(t *testing.T) {
	s := raise(t)
	server := s.notifications(t)
	s.menu.Wait(t, soon, "alice", nil)
	if err := tray.Start(t.Context(), s.socket, "v0", slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	server.wait(t, "alice · Autonomous")
}
