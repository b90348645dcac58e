package tray_test

import (
	"context"
	"strings"
	"testing"

	"kith.dev/core/api"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
	"kith.dev/test/bustest"
)

// The tether begins and ends in windows: what a click leads to shows what it would mean, and changes nothing.
func TestTetherByClicks(t *testing.T) {
	s := raise(t)
	s.windows(t)
	s.daemon.Set(func() {
		s.daemon.Effects = []string{"kubectl here asks the cluster of bob."}
		s.daemon.Blockers = []api.Problem{{What: "this laptop offers resources to carol", Do: "`kith unpeer carol`"}}
	})
	s.menu.Click(t, "Tether this laptop to bob…")
	s.window(t, "This laptop cannot be tethered to bob yet.\n\n- this laptop offers resources to carol\n   `kith unpeer carol`")
	s.daemon.Set(func() { s.daemon.Blockers = nil })
	s.press(t, "exit 0") // look again
	s.window(t, "Have bob&#39;s cluster run this laptop?\n\nIt is cluster bob.\n- kubectl here asks the cluster of bob.")
	if calls := strings.Join(s.daemon.Called(), ","); strings.Contains(calls, ",Tether ") {
		t.Error("a click has tethered: ", calls)
	}
	s.press(t, "exit 1") // later
	s.menu.Click(t, "Tether this laptop to bob…")
	s.window(t, "Have bob")
	s.press(t, "exit 0")
	s.called(t, "Tether ID-bob keep")
	s.menu.Wait(t, soon, "Mode: Tethered to bob", nil)
	s.menu.Wait(t, soon, "alice · Tethered to bob", nil)

	s.daemon.Set(func() {
		s.daemon.State.Counts.Guests, s.daemon.Known[0].Incoming, s.daemon.Known[0].Pods.Guests = 2, api.StateConnected, 2
	})
	s.menu.Wait(t, soon, "bob ◂ runs this laptop: 2 pods", nil)
	s.menu.WaitGone(t, soon, "Sharing")
	s.menu.Click(t, "Untether…")
	s.window(t, "bob is asked to take away what it runs here, 2 pods")
	s.press(t, "exit 0")
	s.called(t, "Untether")
	s.menu.Wait(t, soon, "Tether this laptop to bob…", func(l bustest.Line) bool { return l.Enabled })
}

func TestATetherThatFailsIsShownInTheMenu(t *testing.T) {
	s := raise(t)
	s.windows(t)
	s.daemon.Set(func() {
		s.daemon.TetherAnswer = &api.Error{Code: api.CodeDeclined, Message: "not tethered to bob", Reason: "its owner declined"}
	})
	s.menu.Click(t, "Tether this laptop to bob…")
	s.window(t, "Have bob")
	s.press(t, "exit 0")
	s.menu.Wait(t, soon, "not tethered to bob: its owner declined", nil)
}

// older is a kithd that knows no tethers.
type older struct{ *apitest.Backend }

func (older) CheckTether(context.Context, string, api.DryRun) (api.TetherCheck, error) {
	return api.TetherCheck{}, &api.Error{Code: api.CodeUnsupported, Message: "the local API has no call GET /v1/tether", Reason: "kith and kithd may be of different versions"}
}

func TestAnOlderDaemonHasNoTether(t *testing.T) {
	s := raise(t)
	s.menu.Wait(t, soon, "Tether this laptop to bob…", nil)
	s.stop()
	<-s.ended
	s.socket = apitest.Serve(t, older{s.daemon}, localapi.NewBroker(8))
	s.start(t)
	s.menu = s.panel.Menu(t)
	s.menu.Click(t, "Tether this laptop to bob…")
	s.menu.Wait(t, soon, "Tether this laptop to it (this kithd cannot: update it)", func(l bustest.Line) bool { return !l.Enabled })
}
