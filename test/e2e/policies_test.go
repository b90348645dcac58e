//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/test/lab"
)

// TestWhatAPolicyBoundsIsBoundForPeers has bob share by hours, on mains, with a reserve and for so many peers; alice asks, and bob's
// kith share explain says beforehand what she gets.
func TestWhatAPolicyBoundsIsBoundForPeers(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range l.Laptops() {
		eventually(t, 2*time.Minute, p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	eventually(t, time.Minute, "they see each other", func() string {
		if a, b := peerOf(t, alice, "bob"), peerOf(t, bob, "alice"); !a.Reachable || !b.Reachable {
			return fmt.Sprintf("%+v, %+v", a, b)
		}
		return ""
	})
	awaitGuests(t, bob)
	explain := func(t *testing.T) (o api.Offered) {
		t.Helper()
		if err := json.Unmarshal([]byte(kith(t, bob, "share", "explain", "alice", "-o", "json")), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	refused := func(t *testing.T, reason api.NoOffer, says string) {
		t.Helper()
		if o := explain(t); o.Reason != reason {
			t.Errorf("explained as %q, want %q: %+v", o.Reason, reason, o)
		}
		out, err := asking(t, alice, "peer", "bob", "--cpu", "100m", "--memory", "128Mi", "--pods", "2", "--timeout", "1m")
		if err == nil || !strings.Contains(out+err.Error(), says) {
			t.Errorf("alice hears %v %s, nothing of %q", err, out, says)
		}
	}
	at := func(from, to time.Duration) string {
		now := time.Now().UTC()
		return now.Add(from).Format("15:04") + "-" + now.Add(to).Format("15:04")
	}
	kith(t, bob, "share", "50%", "--hours", at(3*time.Hour, 5*time.Hour), "--time-zone", "UTC")
	t.Run("outside of its hours", func(t *testing.T) {
		refused(t, api.NoOfferClosed, "outside of the hours of SharingPolicy default, which begin")
		if o := explain(t); o.Opens.IsZero() || time.Until(o.Opens) > 3*time.Hour || time.Until(o.Opens) < 3*time.Hour-2*time.Minute {
			t.Errorf("it opens at %s", o.Opens)
		}
	})
	kith(t, bob, "share", "--hours", at(-2*time.Hour, 30*time.Minute))
	t.Run("when they end soon", func(t *testing.T) { refused(t, api.NoOfferCloses, "too soon for a contract") })
	kith(t, bob, "share", "--hours", at(-2*time.Hour, 5*time.Hour), "--reserve", "cpu=100%")
	t.Run("when all is reserved", func(t *testing.T) { refused(t, api.NoOfferNothingFree, "free") })
	kith(t, bob, "share", "--reserve", "cpu=10%", "--max-per-peer", "cpu=150m,pods=3", "--max-peers", "1", "--on-mains")
	t.Run("within them", func(t *testing.T) {
		o := explain(t)
		if o.Reason != "" || len(o.Resources) == 0 || o.Resources[0].Name != "cpu" || o.Resources[0].Offered != "150m" || o.Resources[0].Bound != api.BoundByPerPeer || o.Closes.IsZero() {
			t.Fatalf("%+v", o)
		}
		befriend(t, alice, bob, "--cpu", "2", "--memory", "128Mi", "--pods", "2")
		var signed struct {
			Items []struct {
				Spec struct {
					NotAfter  time.Time
					Resources map[string]string
				}
			}
		}
		if err := json.Unmarshal([]byte(kubectl(t, bob, "get", "contracts", "-o", "json")), &signed); err != nil || len(signed.Items) != 1 {
			t.Fatal(err, signed)
		}
		is := signed.Items[0].Spec
		if is.Resources["cpu"] != "150m" || is.NotAfter.After(o.Closes) || o.Closes.Sub(is.NotAfter) > 11*time.Minute {
			t.Errorf("%+v, and the hours end %s", is, o.Closes)
		}
		if o := explain(t); o.Reason != "" || o.Has["cpu"] != "150m" || o.Peers != 0 || o.MaxPeers != 1 {
			t.Errorf("of who has a contract it is said %+v", o)
		}
	})
	t.Run("to people", func(t *testing.T) {
		out := kith(t, bob, "share", "explain", "alice")
		for _, want := range []string{"alice would be offered cpu 150m", "until the policy's hours end", "it has cpu 150m", "it is for everybody", "the most per peer", "150m"} {
			if !strings.Contains(out, want) {
				t.Errorf("want %q in\n%s", want, out)
			}
		}
		t.Log(out)
		t.Log(kith(t, bob, "share"))
	})
}
