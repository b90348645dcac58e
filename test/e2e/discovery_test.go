//go:build lab

package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"kith.dev/test/lab"
)

// TestLaptopsComeAndGo watches one neighbour start, stop, lose its power and move.
func TestLaptopsComeAndGo(t *testing.T) { comeAndGo(t, lab.IPv4) }

// TestLaptopsComeAndGoOverLinkLocal does so where they have nothing but link-local addresses.
func TestLaptopsComeAndGoOverLinkLocal(t *testing.T) { comeAndGo(t, lab.LinkLocal) }

func comeAndGo(t *testing.T, lan lab.Family) {
	l := laptops(t, lab.Options{Laptops: 2, NoEngine: true, LAN: lan})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	seen := func() string {
		if p := peerOf(t, alice, "bob"); !p.Reachable {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	}
	eventually(t, 20*time.Second, "alice sees bob", seen)

	if err := bob.StopDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone := eventually(t, 10*time.Second, "bob said goodbye", func() string {
		if p := peerOf(t, alice, "bob"); p.Name != "" {
			return fmt.Sprintf("still listed: %+v", p)
		}
		return ""
	})
	if err := bob.StartDaemon(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := eventually(t, 20*time.Second, "alice sees bob again", seen)

	if err := bob.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead := eventually(t, 30*time.Second, "bob is shown unreachable", func() string {
		if p := peerOf(t, alice, "bob"); p.Reachable {
			return "still reachable"
		}
		return ""
	})
	if p := peerOf(t, alice, "bob"); p.Name != "" && p.Why == "" {
		t.Error("an unreachable peer must say why")
	}
	if err := bob.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "bob is back", seen)
	if _, err := bob.Move(t.Context(), netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	moved := eventually(t, 30*time.Second, "bob is reached at his new address", func() string {
		address, err := bob.Address()
		if err != nil {
			t.Fatal(err)
		}
		p := peerOf(t, alice, "bob")
		if !p.Reachable || len(p.Addresses) == 0 || p.Addresses[0] != netip.AddrPortFrom(address, 6450).String() {
			return fmt.Sprintf("%+v, want %s", p, address)
		}
		return ""
	})
	t.Logf("gone %s after a stop, back %s after a start, unreachable %s after a power loss, at the new address after %s", gone, back, dead, moved)
}

// TestFiftyLaptopsSeeEachOther fills the LAN.
func TestFiftyLaptopsSeeEachOther(t *testing.T) {
	const many = 50
	l := laptops(t, lab.Options{Laptops: many, NoEngine: true})
	took := eventually(t, 60*time.Second, "everybody sees everybody", func() string {
		for _, p := range l.Laptops() {
			if list, err := peers(t, p); len(list) != many-1 {
				return fmt.Sprintf("%s sees %d (%v)", p.Name(), len(list), err)
			}
		}
		return ""
	})
	t.Logf("all saw all %s after the last daemon answered", took)
}

// TestWhoWasAddedByAddressIsFollowed: no multicast leads to bob, and alice typed his address in. He moves to another; he knows hers, and calls.
func TestWhoWasAddedByAddressIsFollowed(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2, Config: map[string]any{"discovery": map[string]any{"lan": false}}})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	for _, p := range l.Laptops() {
		eventually(t, 30*time.Second, "kithd of "+p.Name()+" is ready", func() string { return engineReady(t, p) })
	}
	at, err := bob.Address()
	if err != nil {
		t.Fatal(err)
	}
	kith(t, alice, "peer", "add", netip.AddrPortFrom(at, 6450).String())
	befriend(t, alice, bob, "--cpu", "100m", "--memory", "64Mi", "--pods", "5")
	to, err := bob.Move(t.Context(), netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	moved := eventually(t, time.Minute, "alice reaches bob at his new address", func() string {
		p := peerOf(t, alice, "bob")
		if !p.Reachable || p.Addresses[0] != netip.AddrPortFrom(to, 6450).String() || !p.Tunnel.Up {
			return fmt.Sprintf("%+v, want %s", p, to)
		}
		return ""
	})
	t.Logf("at the new address after %s", moved)
}
