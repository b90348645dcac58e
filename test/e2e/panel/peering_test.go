//go:build lab

package panel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kith.dev/assets/icon"
	"kith.dev/core/api"
	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// laptops brings up alice and bob.
func laptops(t *testing.T) (alice, bob *lab.Laptop) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a lab needs root, for its namespaces")
	}
	archives, err := images.Build(t.Context(), filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Up(t.Context(), lab.Options{Name: fmt.Sprint("panel", os.Getpid()), Laptops: 2, Images: archives})
	if l != nil {
		t.Cleanup(func() {
			if t.Failed() {
				for _, p := range l.Laptops() {
					var log bytes.Buffer
					err := p.Logs(context.Background(), &log, "kithd", false)
					t.Logf("%s: %v\n%s", p.Name(), err, log.Bytes()[max(0, log.Len()-8000):])
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := l.Down(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.Laptop("alice"), l.Laptop("bob")
}

// TestPeeringByMouse has two owners at two desktops: alice clicks bob, bob clicks Accept in the notification, and alice, who compares the
// code, Confirm in the window that her menu opens. Once they know each other bob accepts in a window.
func TestPeeringByMouse(t *testing.T) {
	a, b := laptops(t)
	alice, bob := newScreen(t, "alice"), newScreen(t, "bob")
	for s, p := range map[*screen]*lab.Laptop{alice: a, bob: b} {
		s.desk()
		s.greeted(p)
		s.trayWith(p.Path("/run/kith/kith.sock"), "yad")
		s.slow = 2 * time.Minute // the clusters start
		s.line("Cluster ready", nil)
		s.slow = 0
	}
	for round := range peerings {
		alice.open(icon.Alone)
		alice.choose("Ask bob for cpu ", "click-bob")
		began := time.Now()
		bob.buttons()
		bob.picture("request")
		if round == 0 {
			bob.answer("Accept")
			alice.buttons()
			alice.picture("accepted")
			bob.line("alice was accepted · its owner compares the code ", nil)
			bob.picture("compared")
			alice.open(icon.Alone) // nothing is signed by now
			alice.choose("bob accepted · compare the code ", "click-compare")
			alice.decide("confirm")
		} else { // they know each other's keys: there is no code to compare
			bob.open(icon.Alone)
			bob.choose("alice asks · would get ", "click-accept")
			bob.decide("accept")
		}
		bob.line("alice ◂ uses you", nil)
		alice.line("bob ▸ you use 0 of ", nil)
		took := time.Since(began)
		alice.open(icon.Peered)
		alice.picture("peered")
		alice.shut()
		bob.waitIcon(icon.Offering)
		for _, s := range []*screen{alice, bob} {
			for _, r := range s.windows("xfce4-notifyd") {
				if r.Dy() > 110 {
					t.Errorf("round %d: %s's notification is still there after it was answered", round, s.name)
				}
			}
		}
		bob.open(icon.Offering)
		bob.picture("offering")
		bob.shut()
		t.Logf("round %d: from the click on bob to the node %v", round, took.Round(time.Millisecond))

		alice.open(icon.Peered)
		alice.choose("Unpeer bob…", "unpeer")
		alice.decide("unpeer-window")
		alice.line("bob · ", nil)
		alice.waitIcon(icon.Alone)
		bob.waitIcon(icon.Alone)
	}
}

// greeted has the tray know that its user was told once that the laptop is ready: what it says then would be in the pictures.
func (s *screen) greeted(p *lab.Laptop) {
	s.t.Helper()
	var status api.Status
	out, err := p.Kith(s.t.Context(), "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &status)
	}
	dir := filepath.Join(s.dir, "config", "kith")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "notifications.json"), fmt.Appendf(nil, `{"ready": %q}`, status.ID), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
