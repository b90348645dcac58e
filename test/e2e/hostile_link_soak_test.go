//go:build lab && soak

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestAnotherNetworkHasTheRangeOfGuests: a laptop comes to a network of the addresses that guests have, as provider and as consumer. Its own
// programs send to that network as anybody's would; pods have the guests that there are, at the addresses that they have. When the
// last of them has ended another range is agreed on.
func TestAnotherNetworkHasTheRangeOfGuests(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "300m", "--memory", "256Mi", "--pods", "6")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	apply(t, alice, solo("desk", "alice"))
	desk := waitReady(t, alice, 1, "-n", "shop", "-l", "app=desk")[0].Status.PodIP
	ranges := func() (home, provider string) {
		return kubectl(t, alice, "get", "peer", "bob", "-o", "jsonpath={.status.network.guestsThere}"),
			kubectl(t, bob, "get", "peer", "alice", "-o", "jsonpath={.status.network.guestsHere}")
	}
	for _, mover := range []*lab.Laptop{bob, alice} {
		name := "at-" + mover.Name()
		apply(t, alice, solo(name, "kith-bob"))
		guest := waitReady(t, alice, 1, "-n", "shop", "-l", "app="+name)[0].Status.PodIP
		was, _ := ranges()
		if !netip.MustParsePrefix(was).Contains(netip.MustParseAddr(guest)) {
			t.Fatalf("the guest has %s, not of %s", guest, was)
		}
		both := func() string {
			if err := dial(t, alice, "shop", "desk", guest+":8080"); err != nil {
				return fmt.Sprintf("home to its guest: %v", err)
			}
			if err := dial(t, alice, "shop", name, desk+":8080"); err != nil {
				return fmt.Sprintf("the guest to its home: %v", err)
			}
			return ""
		}
		eventually(t, 10*time.Second, "home and guest reach each other", both)

		b := netip.MustParsePrefix(was).Addr().As4()
		lan := netip.PrefixFrom(netip.AddrFrom4([4]byte{b[0], b[1], b[2] ^ 1, 1}), 20).String()
		if _, stderr, err := mover.Exec(t.Context(), "ip", "address", "add", lan, "dev", "eth0"); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		neighbour := netip.AddrFrom4([4]byte{b[0], b[1], b[2], 209}).String() // of the network, and of the guests' range
		took := eventually(t, 20*time.Second, mover.Name()+" sends to its new network by that", func() string {
			if out, _, _ := mover.Exec(t.Context(), "ip", "route", "get", neighbour); strings.Contains(out, "kith0") || !strings.Contains(out, "eth0") {
				return instead(out)
			}
			return ""
		})
		t.Logf("%s: after %s", mover.Name(), took.Round(10*time.Millisecond))
		other := map[*lab.Laptop]string{alice: "bob", bob: "alice"}[mover]
		eventually(t, 20*time.Second, "its Peer says so", func() string {
			out := kubectl(t, mover, "get", "peer", other, "-o", `jsonpath={.status.conditions[?(@.type=="AddressesFree")].status} {.status.conditions[?(@.type=="AddressesFree")].message}`)
			if !strings.HasPrefix(out, "False ") || !strings.Contains(out, was) {
				return instead(out)
			}
			return ""
		})
		for range 5 {
			if not := both(); not != "" {
				t.Errorf("while %s is in a network of %s: %s", mover.Name(), was, not)
			}
			time.Sleep(2 * time.Second)
		}
		if now := waitReady(t, alice, 1, "-n", "shop", "-l", "app="+name)[0]; now.Status.PodIP != guest || now.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("the guest had %s, is %+v", guest, now.Status)
		}
		kubectl(t, alice, "-n", "shop", "delete", "pod", name, "--wait=true")
		took = eventually(t, 40*time.Second, "both agree on another range", func() string {
			if home, provider := ranges(); home == was || home != provider {
				return fmt.Sprintf("it was %s, alice has %s, bob %s", was, home, provider)
			}
			return ""
		})
		t.Logf("%s: another range after %s", mover.Name(), took.Round(10*time.Millisecond))
		apply(t, alice, solo(name+"-again", "kith-bob"))
		guest, name = waitReady(t, alice, 1, "-n", "shop", "-l", "app="+name+"-again")[0].Status.PodIP, name+"-again"
		eventually(t, 10*time.Second, "home and its new guest reach each other", both)
		kubectl(t, alice, "-n", "shop", "delete", "pod", name, "--wait=true")
	}
}
