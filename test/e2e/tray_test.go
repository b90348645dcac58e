//go:build lab

package e2e

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"kith.dev/test/bustest"
	"kith.dev/test/lab"
	"kith.dev/test/pace"
)

// seat is a laptop's desktop: a session bus, a panel, and the tray in it.
type seat struct {
	laptop *lab.Laptop
	menu   *bustest.Menu
}

// sit starts the desktop of a laptop. It ends with the test.
func sit(t *testing.T, p *lab.Laptop) seat {
	t.Helper()
	const socket = "/run/desktop-bus"
	ctx, cancel := context.WithCancel(context.Background())
	run := func(args ...string) <-chan struct{} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			err := p.Run(ctx, lab.Command{Args: args, Env: []string{"DBUS_SESSION_BUS_ADDRESS=unix:path=" + socket}, Stderr: t.Output()})
			if ctx.Err() == nil {
				t.Errorf("%s: %s ended: %v", p.Name(), args[0], err)
			}
		}()
		return ended
	}
	bus := run("dbus-daemon", "--session", "--nofork", "--nopidfile", "--address=unix:path="+socket)
	eventually(t, 10*time.Second, "the session bus of "+p.Name(), func() string {
		if _, err := os.Stat(p.Path(socket)); err != nil {
			return err.Error()
		}
		return ""
	})
	panel := bustest.At("unix:path="+p.Path(socket)).Watch(t, 0)
	// There is no screen. In place of a window and the person before it is a program that presses the first button; test/e2e/panel has
	// the real ones.
	const hands = "/run/desktop-hands"
	if err := os.MkdirAll(p.Path(hands), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Path(hands+"/zenity"), []byte("#!/bin/sh\nexec /bin/sleep 0.5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tray := run("sh", "-c", "DISPLAY=:0 PATH="+hands+":$PATH exec kith-tray --verbose")
	t.Cleanup(func() {
		cancel()
		<-tray
		<-bus
	})
	return seat{p, panel.Menu(t)}
}

// TestTray peers two laptops by clicks alone, as their owners do: the one asks, the other one accepts, and the first confirms the code.
func TestTray(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := sit(t, l.Laptop("alice")), sit(t, l.Laptop("bob"))
	alice.menu.Wait(t, 30*time.Second, "alice · Autonomous", nil)
	for _, s := range []seat{alice, bob} {
		eventually(t, time.Minute, s.laptop.Name()+" is ready", func() string { return engineReady(t, s.laptop) })
	}
	began := time.Now()
	alice.menu.Wait(t, 30*time.Second, "bob · would give cpu ", nil)
	alice.menu.Click(t, "Ask bob for cpu ")
	asks := bob.menu.Wait(t, 10*time.Second, "alice asks · would get", nil)
	waits := alice.menu.Wait(t, 10*time.Second, "bob ▸ waits for its owner · code ", nil)
	if code := codeIn(asks.Label); code == "" || code != codeIn(waits.Label) {
		t.Errorf("the owners see different codes: %q and %q", asks.Label, waits.Label)
	}
	if first := bob.menu.Lines(t)[0]; first.Label != asks.Label {
		t.Errorf("bob's first line is %q", first.Label)
	}
	bob.menu.Click(t, "alice asks")
	compare := alice.menu.Wait(t, 10*time.Second, "bob accepted · compare the code ", nil)
	if code := codeIn(asks.Label); code != codeIn(compare.Label) {
		t.Errorf("bob accepted %q, and alice is to confirm %q", code, compare.Label)
	}
	bob.menu.Wait(t, 10*time.Second, "alice was accepted · its owner compares the code "+codeIn(asks.Label), nil)
	if p := peerOf(t, alice.laptop, "bob"); p.Outgoing != "requested" {
		t.Errorf("alice has confirmed nothing, and bob is %+v", p)
	}
	alice.menu.Click(t, "bob accepted · compare the code ")
	alice.menu.Wait(t, 30*time.Second, "bob ▸ you use 0 of ", nil)
	bob.menu.Wait(t, 10*time.Second, "alice ◂ uses you: 0 pods", nil)
	eventually(t, 10*time.Second, "the node is Ready", func() string {
		out := kubectl(t, alice.laptop, "get", "node", "kith-bob", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if out != "True" {
			return instead(out)
		}
		return ""
	})
	pace.Within(t, "from the click to the node", time.Since(began), 30*time.Second)

	t.Run("pods are counted", func(t *testing.T) {
		kubectl(t, alice.laptop, "create", "namespace", "shop")
		kith(t, alice.laptop, "offload", "shop")
		apply(t, alice.laptop, web(4))
		alice.menu.Wait(t, time.Minute, "of yours run", nil)
		alice.menu.Wait(t, 10*time.Second, "bob ▸ you use 0.", func(line bustest.Line) bool { return strings.HasSuffix(line.Label, " CPU") })
		bob.menu.Wait(t, 10*time.Second, "alice ◂ uses you: ", func(line bustest.Line) bool { return !strings.HasSuffix(line.Label, " 0 pods") })
	})
	t.Run("restarted daemon", func(t *testing.T) {
		if err := alice.laptop.StopDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		alice.menu.Wait(t, 10*time.Second, "Kith is not running", nil)
		if err := alice.laptop.StartDaemon(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "alice is ready", func() string { return engineReady(t, alice.laptop) })
		alice.menu.Wait(t, 2*time.Second, "bob ▸ ", nil)
		alice.menu.Wait(t, 30*time.Second, "bob ▸ you use", nil)
	})
	t.Run("sharing", func(t *testing.T) {
		bob.menu.Click(t, "Sharing 50 % …")
		bob.menu.Wait(t, 10*time.Second, "Sharing 100 % …", nil)
		if events := kith(t, bob.laptop, "events"); !strings.Contains(events, "the sharing policy default was changed: 50% → 100%") {
			t.Error(events)
		}
		kith(t, bob.laptop, "share", "off")
		bob.menu.Wait(t, 10*time.Second, "Sharing paused …", nil)
	})
	t.Run("the page", func(t *testing.T) { answersByThePage(t, alice.laptop, bob.laptop) })
	t.Run("the end", func(t *testing.T) {
		alice.menu.Click(t, "Unpeer bob…")
		alice.menu.Wait(t, 2*time.Minute, "bob · ", nil)
		bob.menu.WaitGone(t, time.Minute, "uses you")
	})
}

// codeIn gives the code of a line: "… code 069 210 · …", or at its end "… code 069 210…".
func codeIn(label string) string {
	_, after, _ := strings.Cut(label, "code ")
	code, _, _ := strings.Cut(after, " · ")
	return strings.TrimSuffix(code, "…")
}
