//go:build lab && soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestWhatStandsInTheWayOfATether: all of it is told, with what to do, and nothing is changed.
func TestWhatStandsInTheWayOfATether(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 3})
	alice, bob, carol := l.Laptop("alice"), l.Laptop("bob"), l.Laptop("carol")
	for _, p := range []*lab.Laptop{alice, bob, carol} {
		eventually(t, time.Minute, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	eventually(t, 20*time.Second, "alice sees bob", func() string {
		if p := peerOf(t, alice, "bob"); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
	t.Run("no policy", func(t *testing.T) { refusedTether(t, alice, "bob does not run this laptop", "TetherPolicy") })
	apply(t, bob, fmt.Sprintf(laptopsOfTheCompany, false))
	t.Run("it cannot be reached", func(t *testing.T) {
		if err := l.Cut(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		eventually(t, 40*time.Second, "alice knows that bob is away", func() string {
			if p := peerOf(t, alice, "bob"); p.Reachable {
				return fmt.Sprintf("%+v", p)
			}
			return ""
		})
		refusedTether(t, alice, "bob")
		if err := l.Heal(t.Context(), "alice", "bob"); err != nil {
			t.Fatal(err)
		}
		eventually(t, 40*time.Second, "alice has bob again", func() string {
			if p := peerOf(t, alice, "bob"); !p.Reachable {
				return fmt.Sprintf("%+v", p)
			}
			return ""
		})
	})
	t.Run("declined", func(t *testing.T) {
		done := make(chan string, 1)
		go func() {
			out, err := alice.Kith(t.Context(), "tether", "bob", "--yes")
			done <- fmt.Sprint(out, err)
		}()
		eventually(t, 20*time.Second, "bob is asked", func() string {
			for _, r := range requests(t, bob) {
				if r.Peer == "alice" && r.Direction == "incoming" {
					kith(t, bob, "decline", r.ID)
					return ""
				}
			}
			return "no request"
		})
		if text := <-done; !strings.Contains(text, "declined") {
			t.Error(text)
		}
		untethered(t, alice, bob)
	})
	t.Run("others use this laptop, and it uses others", func(t *testing.T) {
		befriend(t, bob, alice, "--cpu", "100m", "--memory", "128Mi", "--pods", "5")
		befriend(t, carol, alice, "--cpu", "100m", "--memory", "128Mi", "--pods", "5")
		refusedTether(t, alice, "this laptop offers resources to carol", "kith unpeer carol")
		kith(t, alice, "unpeer", "carol", "--yes")
		befriend(t, alice, carol, "--cpu", "100m", "--memory", "128Mi", "--pods", "5")
		refusedTether(t, alice, "this laptop uses resources of carol", "kith unpeer carol")
		kith(t, alice, "unpeer", "carol", "--yes")
	})
	t.Run("two at once, and one on top", func(t *testing.T) {
		apply(t, carol, fmt.Sprintf(laptopsOfTheCompany, false))
		// What bob has of alice goes over into the tether.
		tethered(t, alice, bob)
		if out, err := alice.Kith(t.Context(), "tether", "carol", "--yes"); err == nil || !strings.Contains(out+err.Error(), "tethered to bob") {
			t.Errorf("tether to carol: %v\n%s", err, out)
		}
		for _, not := range [][]string{{"peer", "carol", "--wait=false"}, {"unpeer", "bob", "--yes"}} {
			if out, err := alice.Kith(t.Context(), not...); err == nil || !strings.Contains(out+err.Error(), "tethered to") {
				t.Errorf("kith %s: %v\n%s", strings.Join(not, " "), err, out)
			}
		}
		if out, err := carol.Kith(t.Context(), "peer", "alice"); err == nil || !strings.Contains(out+err.Error(), "tethered") {
			t.Errorf("carol asks alice: %v\n%s", err, out)
		}
		if cpu := kubectl(t, bob, "get", "contracts", "-o", "jsonpath={.items[*].spec.resources.cpu}"); cpu == "100m" || strings.Contains(cpu, " ") {
			t.Errorf("the company has %q of cpu", cpu)
		}
		kith(t, alice, "untether", "--yes")
		untethered(t, alice, bob)
		codes := make(chan error, 2)
		for _, company := range []string{"bob", "carol"} {
			go func() {
				_, err := alice.Kith(t.Context(), "tether", company, "--yes")
				codes <- err
			}()
		}
		if first := <-codes; first == nil || !strings.Contains(first.Error(), "under way") && !strings.Contains(first.Error(), "tethered") && !strings.Contains(first.Error(), "exit status 8") {
			t.Errorf("two at once: %v", first)
		}
		if s := modeOf(t, alice); s.Mode != api.Autonomous {
			if _, err := alice.Kith(t.Context(), "untether", "--yes"); err != nil {
				t.Error(err)
			}
		}
		<-codes
		inMode(t, alice, api.Autonomous, 30*time.Second)
	})
}
