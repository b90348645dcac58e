//go:build lab && soak

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/lab"
)

// station is what is awake in a laptop that is suspended: its network device, which waits for a magic packet.
type station struct {
	conn net.PacketConn
	mac  net.HardwareAddr
}

func stationOf(t *testing.T, p *lab.Laptop) *station {
	t.Helper()
	s := &station{}
	err := p.InNetwork(func() error {
		card, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		s.mac = card.HardwareAddr
		s.conn, err = net.ListenPacket("udp4", "0.0.0.0:9")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	return s
}

// packets counts the magic packets that come until the time is over, or so many have come.
func (s *station) packets(t *testing.T, most int, within time.Duration) (n int) {
	t.Helper()
	want := append(bytes.Repeat([]byte{255}, 6), bytes.Repeat(s.mac, 16)...)
	s.conn.SetReadDeadline(time.Now().Add(within))
	for buf := make([]byte, 1500); n < most; {
		read, _, err := s.conn.ReadFrom(buf)
		if err != nil {
			break
		}
		if !bytes.Equal(buf[:read], want) {
			t.Errorf("a packet that is none for this machine: %x", buf[:read])
			continue
		}
		n++
	}
	return n
}

// wakeAt is what a laptop has in the contract with its peer of waking.
func wakeAt(t *testing.T, p *lab.Laptop) (is v1alpha1.WakeStatus) {
	t.Helper()
	var list v1alpha1.ContractList
	if err := json.Unmarshal([]byte(kubectl(t, p, "get", "contracts", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 1 && list.Items[0].Status.Wake != nil {
		is = *list.Items[0].Status.Wake
	}
	return is
}

// onBattery has a laptop see a battery that is being used.
const onBattery = `mkdir -p /run/supplies/BAT0 && cd /run/supplies/BAT0 && echo Battery > type && echo Discharging > status && echo 60 > capacity && mount --bind /run/supplies /sys/class/power_supply`

// TestAPodHasASleepingLaptopWoken: alice's pod fits nowhere but at bob, who sleeps, and is woken by her once, as his contract says; without the term, past the
// bound and on battery he is not.
func TestAPodHasASleepingLaptopWoken(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob, "--cpu", "500m")
	kubectl(t, alice, "create", "namespace", "shop")
	kith(t, alice, "offload", "shop", "--strategy", "remote")
	w := &world{t: t, alice: alice, bob: bob, apis: map[string]client.Client{}}
	w.withLogind(bob)
	settled := func() {
		t.Helper()
		eventually(t, time.Minute, "bob is there", func() string {
			if out := kubectl(t, alice, "get", "node", "kith-bob", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); out != "True" {
				return out
			}
			if not := engineReady(t, bob); not != "" { // before that he knows nobody whom he could tell that he sleeps
				return not
			}
			if in := peerOf(t, bob, "alice"); !in.Reachable || in.Incoming != "connected" {
				return fmt.Sprintf("%+v", in)
			}
			return ""
		})
	}
	var woke time.Time // bob, last
	sleeps := func() {
		t.Helper()
		settled()
		time.Sleep(time.Until(woke.Add(15 * time.Second))) // who sleeps sooner is believed when its stream ends, so not before it is frozen
		if err := w.prepareForSleep(t.Context(), bob, true); err != nil {
			t.Fatal(err)
		}
		eventually(t, 30*time.Second, "bob is asleep", func() string { return w.sleeps(alice, "bob") })
		if err := bob.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wakes := func() {
		t.Helper()
		if err := errors.Join(bob.Thaw(t.Context()), w.prepareForSleep(t.Context(), bob, false)); err != nil {
			t.Fatal(err)
		}
		woke = time.Now()
	}
	refused := func(words string) {
		t.Helper()
		if out, err := alice.Kith(t.Context(), "wake", "bob"); err == nil || !strings.Contains(out+err.Error(), words) {
			t.Errorf("kith wake: %s, %v; want %q", out, err, words)
		}
	}
	says := func(reason, words string) {
		t.Helper()
		eventually(t, time.Minute, "the pod says "+reason, func() string {
			out := kubectl(t, alice, "get", "events", "-n", "shop", "-o", "jsonpath={range .items[*]}{.reason}: {.message}\n{end}")
			if !strings.Contains(out, reason+": "+words) {
				return out
			}
			return ""
		})
	}

	device := stationOf(t, bob)
	sleeps()
	refused("no contract with bob lets this laptop wake it")
	apply(t, alice, web(1))
	if n := device.packets(t, 1, 15*time.Second); n != 0 {
		t.Error("bob is woken, and no contract says that he may be")
	}
	kubectl(t, alice, "scale", "-n", "shop", "deployment/web", "--replicas", "0")
	wakes()
	settled()

	kith(t, bob, "share", "--wake", "1/day", "--auto-accept")
	kith(t, alice, "peer", "bob", "--cpu", "450m")
	if out := kith(t, alice, "contract", "show", kubectl(t, alice, "get", "contracts", "-o", "jsonpath={.items[*].metadata.name}")); !strings.Contains(out, "1/day") {
		t.Errorf("alice's contract: %s", out)
	}
	if out, _ := bob.Kith(t.Context(), "doctor"); !strings.Contains(out, "wake") {
		t.Errorf("kith doctor says nothing of a device that is not armed: %s", out)
	}
	sleeps()
	kubectl(t, alice, "scale", "-n", "shop", "deployment/web", "--replicas", "1")
	began := time.Now()
	if n := device.packets(t, 3, time.Minute); n != 3 {
		t.Fatalf("%d packets; %+v; %s", n, wakeAt(t, alice), kith(t, alice, "why", "-n", "shop", "deployment/web"))
	}
	t.Logf("three packets %s after the pod was asked for", time.Since(began).Round(100*time.Millisecond))
	says("Waking", "waiting for bob to wake")
	if out := kith(t, alice, "why", "-n", "shop", "deployment/web"); !strings.Contains(out, "bob sleeps, and is being woken") {
		t.Errorf("kith why: %s", out)
	} else {
		t.Log(out)
	}
	if n := device.packets(t, 1, 5*time.Second); n != 0 {
		t.Error("more than one series")
	}
	wakes()
	waitReady(t, alice, 1, "-n", "shop", "-l", "app=web")
	t.Logf("the pod ran %s after bob woke", time.Since(woke).Round(100*time.Millisecond))
	eventually(t, 30*time.Second, "bob has counted it", func() string {
		if is, at := wakeAt(t, alice), wakeAt(t, bob); is.State != v1alpha1.WakeWoken || len(is.Times) != 1 || len(at.Times) != 1 || at.Over != 0 {
			return fmt.Sprintf("alice: %+v, bob: %+v", is, at)
		}
		return ""
	})

	sleeps()
	kubectl(t, alice, "scale", "-n", "shop", "deployment/web", "--replicas", "2")
	says("WakeSpent", "bob was woken 1/day already, as agreed")
	refused("1/day already, as agreed")
	wakes()
	settled()

	kubectl(t, alice, "scale", "-n", "shop", "deployment/web", "--replicas", "0")
	if _, stderr, err := bob.Exec(t.Context(), "sh", "-c", onBattery); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	sleeps()
	kubectl(t, alice, "scale", "-n", "shop", "deployment/web", "--replicas", "1")
	says("WakeOnBattery", "bob went to sleep on battery, and is not to be woken")
	refused("on battery")
	if n := device.packets(t, 1, 5*time.Second); n != 0 {
		t.Error("woken past the bound, or on battery")
	}
	wakes()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	bob.Exec(ctx, "umount", "/sys/class/power_supply")
}
