package lab

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kith.dev/test/lab/cgroups"
)

func TestCutIsSilentAndHeals(t *testing.T) {
	l := newLab(t, 3)
	alice, bob, carol, ctx := l.Laptop("alice"), l.Laptop("bob"), l.Laptop("carol"), t.Context()
	if err := l.Cut(ctx, "bob", "alice"); err != nil {
		t.Fatal(err)
	}
	mustTimeOut(t, alice, bob)
	mustTimeOut(t, bob, alice)
	mustReach(t, alice, carol)
	mustReach(t, carol, bob)

	if err := l.Heal(ctx, "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	mustReach(t, alice, bob)

	if err := l.Cut(ctx, "carol", ""); err != nil {
		t.Fatal(err)
	}
	mustTimeOut(t, carol, alice)
	mustTimeOut(t, bob, carol)
	mustReach(t, alice, bob)
	if i, _ := carol.Info(); fmt.Sprint(i.Cut) != "[lan]" {
		t.Errorf("carol is cut from %v", i.Cut)
	}
	if out, _, err := carol.Exec(ctx, "cat", "/sys/class/net/eth0/operstate"); err != nil || out != "up\n" {
		t.Errorf("carol sees her link %q, %v: a cut must not show", out, err)
	}
	if err := l.Heal(ctx, "carol", ""); err != nil {
		t.Fatal(err)
	}
	mustReach(t, carol, alice)
	if err := l.Cut(ctx, "alice", "zoe"); err == nil {
		t.Error("cut from a laptop that is not there")
	}
}

func TestCutHoldsOverAReboot(t *testing.T) {
	l := newLab(t, 2)
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	if err := l.Cut(ctx, "alice", "bob"); err != nil {
		t.Fatal(err)
	}
	reboot(t, bob)
	mustTimeOut(t, alice, bob)
	if err := l.Heal(ctx, "bob", ""); err != nil {
		t.Fatal(err)
	}
	mustReach(t, alice, bob)
}

func reboot(t *testing.T, p *Laptop) {
	t.Helper()
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPowerLossKeepsTheDiskOnly(t *testing.T) {
	l := newLab(t, 2)
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	mustReach(t, alice, bob)
	if _, _, err := bob.Exec(ctx, "sh", "-ec", "echo x > /var/lib/kept; echo x > /etc/kept; echo x > /run/gone; (setsid sleep 600 &) >&- 2>&-"); err != nil {
		t.Fatal(err)
	}
	if err := bob.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if i, _ := bob.Info(); i.Power != Off {
		t.Errorf("bob is %s", i.Power)
	}
	if _, _, err := bob.Exec(ctx, "true"); err == nil || !strings.Contains(err.Error(), "kith-lab boot bob") {
		t.Errorf("exec in a laptop that is off: %v", err)
	}
	mustTimeOutOrUnreachable(t, alice, bob)
	if err := bob.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	// At once: the neighbour's ARP entry must still be right.
	eventually(t, 3*time.Second, func() bool { _, err := ask(t, alice, bob, "/"); return err == nil })
	out, _, err := bob.Exec(ctx, "sh", "-c", "cat /var/lib/kept /etc/kept; ls /run/gone; cat /proc/[0-9]*/comm")
	if err != nil || strings.Count(out, "x\n") != 2 || strings.Contains(out, "sleep") || strings.Contains(out, "gone") {
		t.Errorf("after the power loss: %q, %v", out, err)
	}
}

func mustTimeOutOrUnreachable(t *testing.T, from, to *Laptop) {
	t.Helper()
	if _, err := ask(t, from, to, "/"); err == nil {
		t.Fatalf("%s answers %s", to.name, from.name)
	}
}

func TestFrozenLaptopAnswersNothingAndGoesOn(t *testing.T) {
	l := newLab(t, 2)
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	before, _ := bob.Info()
	if err := bob.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	mustTimeOut(t, alice, bob)
	if _, _, err := bob.Exec(ctx, "true"); err == nil || !strings.Contains(err.Error(), "kith-lab thaw bob") {
		t.Errorf("exec in a frozen laptop: %v", err)
	}
	if i, _ := bob.Info(); i.Power != Frozen {
		t.Errorf("bob is %s", i.Power)
	}
	if err := bob.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	mustReach(t, alice, bob)
	if after, _ := bob.Info(); after.PID != before.PID || after.Restarts != 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestMoveChangesTheAddress(t *testing.T) {
	l := newLab(t, 2)
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	to, err := bob.Move(ctx, netip.Addr{})
	if err != nil || to != netip.MustParseAddr("192.0.2.101") {
		t.Fatalf("moved to %v, %v", to, err)
	}
	mustReach(t, alice, bob)
	if out, _, _ := bob.Exec(ctx, "cat", "/proc/net/fib_trie"); strings.Contains(out, "192.0.2.12\n") {
		t.Error("the old address is still there")
	}
	if out, _, _ := bob.Exec(ctx, "cat", "/proc/net/route"); !strings.Contains(out, "eth0\t00000000\t010200C0") {
		t.Errorf("no default route:\n%s", out)
	}
	if _, err := alice.Move(ctx, to); err == nil || !strings.Contains(err.Error(), "taken by bob") {
		t.Errorf("alice moved to bob's address: %v", err)
	}
	if next, err := bob.Move(ctx, netip.Addr{}); err != nil || next != netip.MustParseAddr("192.0.2.102") {
		t.Errorf("moved again to %v, %v", next, err)
	}
	reboot(t, bob)
	eventually(t, 3*time.Second, func() bool { _, err := ask(t, alice, bob, "/"); return err == nil })
}

func TestSlowLimitsBothDirections(t *testing.T) {
	l := newLab(t, 2)
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	transfer := func(from, to *Laptop) time.Duration {
		t.Helper()
		a, _ := to.Address()
		begin := time.Now()
		if _, _, err := from.Exec(ctx, "app", "sha256", fmt.Sprintf("http://%s:8080/blob?bytes=2000000", a)); err != nil {
			t.Fatal(err)
		}
		return time.Since(begin)
	}
	if err := bob.Slow(ctx, Link{Rate: 16e6}); err != nil { // 2 MB a second
		t.Fatal(err)
	}
	for _, d := range [][2]*Laptop{{alice, bob}, {bob, alice}} {
		if took := transfer(d[0], d[1]); took < 800*time.Millisecond || took > 4*time.Second {
			t.Errorf("2 MB from %s to %s at 16 Mbit/s took %v", d[1].name, d[0].name, took)
		}
	}
	reboot(t, bob)
	eventually(t, 3*time.Second, func() bool { _, err := ask(t, alice, bob, "/"); return err == nil })
	if took := transfer(alice, bob); took < 800*time.Millisecond {
		t.Errorf("after a reboot it took %v", took)
	}
	if err := bob.Slow(ctx, Link{}); err != nil {
		t.Fatal(err)
	}
	if took := transfer(alice, bob); took > 800*time.Millisecond {
		t.Errorf("with the limit off it took %v", took)
	}
}

func TestLossDropsAPart(t *testing.T) {
	l := newLab(t, 2)
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	mustReach(t, alice, bob) // ARP, which is lost as well
	if err := bob.Slow(ctx, Link{Loss: 0.3}); err != nil {
		t.Fatal(err)
	}
	c, err := alice.Dial(ctx, "udp", "192.0.2.12:9999")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const sent = 400
	got := 0
	for range sent {
		fmt.Fprint(c, "x")
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		if _, err := c.Read(make([]byte, 2000)); err == nil {
			got++
		}
	}
	// 0.7 there and 0.7 back is 0.49; answers may also be a little late.
	if part := float64(got) / sent; part < 0.3 || part > 0.6 {
		t.Errorf("%d of %d packets were answered, want about half", got, sent)
	}
}

func TestDelayIsSetOrRefusedWithTheReason(t *testing.T) {
	l := newLab(t, 2)
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	err := bob.Slow(ctx, Link{Delay: 50 * time.Millisecond})
	if err != nil {
		if !strings.Contains(err.Error(), "netem") {
			t.Fatal(err)
		}
		if i, _ := bob.Info(); i.Link != (Link{}) {
			t.Errorf("refused, but remembered: %+v", i.Link)
		}
		return
	}
	begin := time.Now()
	mustReach(t, alice, bob)
	if took := time.Since(begin); took < 200*time.Millisecond { // connection and request, 100 ms each
		t.Errorf("a request took %v", took)
	}
}

func TestMTUDropsWhatIsLarger(t *testing.T) {
	l := newLab(t, 2)
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	if err := bob.SetMTU(ctx, 1300); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(bob.Path("/sys/class/net/eth0/mtu")); string(b) != "1300\n" {
		t.Errorf("bob's MTU is %q", b)
	}
	answered := func(size int) bool {
		c, err := alice.Dial(ctx, "udp", "192.0.2.12:9999")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write(make([]byte, size))
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		_, err = c.Read(make([]byte, 2000))
		return err == nil
	}
	if !answered(1300 - 28) {
		t.Error("a packet of just the MTU was lost")
	}
	if answered(1300 - 27) {
		t.Error("a packet one byte larger than the MTU passed")
	}
	if err := bob.SetMTU(ctx, 100); err == nil {
		t.Error("an MTU of 100 was taken")
	}
}

// What machines with cgroup v2 alone do, on one that also has v1.
func TestCgroupV2Alone(t *testing.T) {
	hs, err := cgroups.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	hs = slices.DeleteFunc(hs, func(h cgroups.Hierarchy) bool { return !h.V2 })
	if len(hs) != 1 {
		t.Skip("no cgroup v2 here")
	}
	l := newLab(t, 2, func(o *Options) { o.hierarchies = hs })
	alice, bob, ctx := l.Laptop("alice"), l.Laptop("bob"), t.Context()
	mustReach(t, alice, bob)
	root := hs[0].Mount
	out, _, err := bob.Exec(ctx, "sh", "-ec", "grep ^0: /proc/self/cgroup; mkdir "+root+"/pods; ls -d "+root+"/*/ | wc -l; sleep 600 >&- 2>&- &")
	if err != nil || out != "0::/init\n2\n" {
		t.Errorf("bob sees of cgroups: %q, %v", out, err)
	}
	if err := bob.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	mustTimeOut(t, alice, bob)
	if err := bob.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	mustReach(t, alice, bob)
	if err := bob.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	reboot(t, bob) // frozen processes die, too
	mustReach(t, alice, bob)
}

func TestFrozenLaptopCanLosePower(t *testing.T) {
	l := newLab(t, 1)
	alice := l.Laptop("alice")
	if err := alice.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	reboot(t, alice)
	mustReach(t, alice, alice)
}
