package tray_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
)

// frontDoor is a kubeconfig as kithd gives it.
const frontDoor = `apiVersion: v1
kind: Config
clusters:
- {name: kith, cluster: {server: "https://127.0.0.1:6451", certificate-authority-data: Y2E=}}
users:
- {name: anna, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}
contexts:
- {name: kith, context: {cluster: kith, user: anna}}
current-context: kith
`

// Somebody who has just installed Kith sees it start, is told once that it is ready, and gets to sharing and to kubectl without a terminal.
func TestAFirstRunByClicks(t *testing.T) {
	s := raise(t)
	screen := s.notifications(t)
	s.windows(t)
	s.daemon.Set(func() {
		s.daemon.State.ID = "ALICEAA-ALICEAA"
		s.daemon.State.Engine = api.Engine{Kind: api.EngineBuiltin, State: api.EngineStarting, Why: "waiting for its API server"}
		s.daemon.Config = []byte(frontDoor)
	})
	m := s.menu
	m.Wait(t, soon, "alice · starting", nil)
	m.Wait(t, soon, "Cluster starting · waiting for its API server", nil)
	for _, later := range []string{"Sharing", "Show kubectl access…"} {
		m.WaitGone(t, soon, later)
	}
	s.daemon.Set(func() {
		s.daemon.State.Engine = api.Engine{Kind: api.EngineBuiltin, State: api.EngineReady, Version: "v1.36.3"}
	})
	m.Wait(t, soon, "Cluster ready · Kubernetes v1.36.3", nil)
	screen.wait(t, "This laptop is ready\nIt is a Kubernetes of its own, called alice")

	s.ask(t, "Sharing 50 % …", "--extra-button=Pause\n--extra-button=Nothing\n--extra-button=25 %\n--extra-button=50 %\n")
	m.Click(t, "Show kubectl access…") // the menu is shut by then, and the window may be behind others
	screen.wait(t, "A window of Kith is open already\nAnswer that one first, or close it")
	s.press(t, "exit 1") // later
	s.ask(t, "Sharing 50 % …", "How much of this laptop may others on your network use?")
	s.press(t, "echo 25 %; exit 1")
	s.window(t, "Ask you each time somebody wants to use 25 % of this laptop?")
	if calls := strings.Join(s.daemon.Called(), ","); strings.Contains(calls, "SetPolicy") {
		t.Error("half an answer has changed the policy: ", calls)
	}
	s.press(t, "exit 0")
	s.policy(t, func(p api.Policy) bool { return p.Amounts["cpu"] == "25%" && !p.AutoAccept && !p.Paused })
	screen.wait(t, "Sharing: 50 % → 25 %")
	s.ask(t, "Sharing 25 % …", "How much")
	s.press(t, "echo 75 %; exit 1")
	s.window(t, "75 % of this laptop")
	s.press(t, "echo Accept all; exit 1")
	s.policy(t, func(p api.Policy) bool { return p.Amounts["cpu"] == "75%" && p.AutoAccept })

	file := filepath.Join(os.Getenv("HOME"), ".kube", "config")
	s.ask(t, "Show kubectl access…", "The context kith is written into a new file, "+file)
	if _, err := os.Stat(file); err == nil {
		t.Error("it was written before it was asked")
	}
	s.press(t, "exit 1") // later
	time.Sleep(50 * time.Millisecond)
	if _, err := os.Stat(file); err == nil {
		t.Error("it was written without a yes")
	}
	s.ask(t, "Show kubectl access…", "Let kubectl reach the Kubernetes of this laptop?")
	s.press(t, "exit 0")
	written(t, file, "current-context: kith")
	screen.wait(t, "kubectl reaches this laptop\nkubectl get nodes")

	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\ncurrent-context: work # mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.ask(t, "Show kubectl access…", "The current context stays work")
	s.press(t, "exit 0")
	written(t, file, "a2V5")
	written(t, file, "current-context: work # mine")
	written(t, file+".before-kith", "current-context: work # mine\n")
	s.ask(t, "Show kubectl access…", "The context kith in "+file+" is renewed.")
	s.press(t, "echo Write and use it; exit 1")
	written(t, file, "current-context: kith")

	// A window that stays open: what is in the file by the time of the answer is not lost, and what it does not say is not done.
	s.ask(t, "Show kubectl access…", "is renewed.")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\ncurrent-context: work\nx-later: kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.press(t, "exit 0")
	m.Wait(t, soon, "is not as the window said any more, and was not changed: try again", nil)
	s.ask(t, "Show kubectl access…", "is added to "+file)
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\ncurrent-context: work\nx-later: still\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.press(t, "exit 0")
	written(t, file, "a2V5")
	written(t, file, "x-later: still")

	if err := os.WriteFile(file, []byte("contexts: [{name: kith, context: {cluster: a, user: b}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Click(t, "Show kubectl access…")
	m.Wait(t, soon, "there is a context named kith already that is not Kith's", nil)
}

// A laptop is new once: not at the next login, but when Kith was removed with all it had and installed anew.
func TestALaptopIsReadyOnceForEachInstallation(t *testing.T) {
	s := raise(t)
	screen := s.notifications(t)
	settings := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "kith", "notifications.json")
	s.daemon.Set(func() { s.daemon.State.ID = "ALICEAA-ALICEAA" })
	screen.wait(t, "This laptop is ready")
	written(t, settings, `"ready": "ALICEAA-ALICEAA"`)
	s.menu.Click(t, "A peer is back")
	written(t, settings, "peerBack")
	written(t, settings, `"ready": "ALICEAA-ALICEAA"`)
	s.stop()
	<-s.ended
	s.start(t)
	s.menu = s.panel.Menu(t)
	s.menu.Wait(t, soon, "alice · Autonomous", nil)
	s.menu.Click(t, "About Kith")
	screen.wait(t, "The laptops around you")
	screen.mu.Lock()
	said := strings.Count(strings.Join(screen.shown, "\n"), "This laptop is ready")
	screen.mu.Unlock()
	if said != 1 {
		t.Errorf("it was said %d times", said)
	}
	s.daemon.Set(func() { s.daemon.State.ID = "BLICEAA-BLICEAA" })
	written(t, settings, `"ready": "BLICEAA-BLICEAA"`)
}
