//go:build lab

package panel

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/test/bustest"
)

// TestAFirstRunByMouse is of somebody who has just installed Kith and knows no terminal: it starts, it is ready, a part of the laptop is
// shared, kubectl gets its context.
func TestAFirstRunByMouse(t *testing.T) {
	b, socket := daemon(t)
	b.Known = nil
	b.State.ID = "ALICEAA-ALICEAA"
	ready := b.State.Engine
	b.State.Engine = api.Engine{Kind: api.EngineBuiltin, State: api.EngineStarting, Why: "waiting for its API server"}
	b.Config = []byte(`{"clusters":[{"name":"kith","cluster":{"server":"https://127.0.0.1:6451"}}],"users":[{"name":"a","user":{"token":"x"}}],` +
		`"contexts":[{"name":"kith","context":{"cluster":"kith","user":"a"}}],"current-context":"kith"}`)
	s := newScreen(t, "alice")
	s.env = append(s.env, "KUBECONFIG=")
	s.desk()
	s.trayWith(socket, "yad")
	s.line("alice · starting", nil)
	t.Log("starting at ", s.open(icon.Alone))
	s.picture("starting")
	s.shut()
	b.Set(func() { b.State.Engine = ready })
	s.line("Cluster ready", nil)
	s.until("the notification that it is ready", func() string {
		if len(s.windows("xfce4-notifyd")) == 0 {
			return "there is none"
		}
		return ""
	})
	time.Sleep(200 * time.Millisecond) // it is being painted
	s.picture("ready")

	enabled := func(l bustest.Line) bool { return l.Enabled }
	s.line("Sharing 50 % …", enabled)
	s.open(icon.Alone)
	s.choose("Sharing 50 % …", "first-menu")
	first := s.window("yad")
	s.picture("share")
	lowerRight(s, first)
	s.until("the second window", func() string {
		for _, w := range s.windows("yad") {
			if w.Dy() > 60 && w != first {
				return ""
			}
		}
		return fmt.Sprint(s.windows("yad"))
	})
	s.decide("share-each")
	s.until("the policy", func() (not string) {
		b.Set(func() {
			if p := b.Shared[0]; p.Amounts["cpu"] != "100%" || p.AutoAccept {
				not = fmt.Sprintf("%+v", p)
			}
		})
		return not
	})

	s.until("the word of what was shared", func() string {
		if len(s.windows("xfce4-notifyd")) == 0 {
			return "there is none"
		}
		return ""
	})
	time.Sleep(200 * time.Millisecond) // it is being painted
	s.picture("shared")
	s.answer("Undo")
	s.line("Sharing 50 % …", enabled)

	s.line("Show kubectl access…", enabled)
	s.open(icon.Alone)
	s.choose("Show kubectl access…", "first-menu")
	s.decide("kubectl")
	s.until("the context", func() string {
		text, err := os.ReadFile(filepath.Join(s.dir, ".kube", "config"))
		if err != nil || !strings.Contains(string(text), "current-context: kith") && !strings.Contains(string(text), `"current-context": "kith"`) {
			return fmt.Sprint(string(text), err)
		}
		return ""
	})
}
