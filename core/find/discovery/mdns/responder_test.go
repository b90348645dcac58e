package mdns

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"kith.dev/core/trust/identity"
)

// air is a LAN in memory, with a clock of its own: what a responder sends, all hear a millisecond later, the
// sender too, except what gets lost.
type air struct {
	t        *testing.T
	now      time.Time
	stations []*responder
	loss     float64
	random   *rand.Rand
	packets  int
}

func newAir(t *testing.T, n int, loss float64) *air {
	a := &air{t: t, now: begin, loss: loss, random: rand.New(rand.NewPCG(3, 4))}
	for range n {
		a.join()
	}
	return a
}

func (a *air) join() *responder {
	n := len(a.stations) + 1
	s, err := newResponder(txtOf(numbered(n), fmt.Sprint("n", n)), 6450, nobody)
	must(a.t, err)
	address := netip.AddrFrom4([4]byte{192, 168, byte(77 + n>>8), byte(n)})
	must(a.t, s.setInterfaces(a.now, []lanInterface{{index: 2, name: "eth0", flags: net.FlagUp, prefixes: []netip.Prefix{netip.PrefixFrom(address, 16)}}}))
	a.stations = append(a.stations, s)
	return s
}

func (s *responder) address() netip.Addr { return s.links[wire].prefixes[0].Addr() }

// run lets time pass, in steps of a millisecond where something happens.
func (a *air) run(d time.Duration) {
	end := a.now.Add(d)
	wake := make([]time.Time, len(a.stations))
	for i := range wake {
		wake[i] = a.now
	}
	for a.now.Before(end) {
		var sent []outgoing
		var from []netip.Addr
		for i, s := range a.stations {
			if wake[i].IsZero() || a.now.Before(wake[i]) {
				continue
			}
			out, next, err := s.tick(a.now)
			must(a.t, err)
			wake[i] = next
			for _, o := range out {
				sent, from = append(sent, o), append(from, s.address())
			}
		}
		a.now = a.now.Add(time.Millisecond)
		for n, o := range sent {
			a.packets++
			for i, s := range a.stations {
				if from[n] != s.address() && a.random.Float64() < a.loss {
					continue
				}
				if _, err := s.receive(a.now, wire, from[n], o.packet); err != nil {
					a.t.Fatal(err)
				}
				wake[i] = a.now
			}
		}
		if len(sent) == 0 {
			next := end
			for _, w := range wake {
				if !w.IsZero() && w.Before(next) {
					next = w
				}
			}
			if next.After(a.now) {
				a.now = next
			}
		}
	}
}

func (a *air) strangers() (missing int) {
	for _, s := range a.stations {
		for _, o := range a.stations {
			if s != o && s.cache.entries[o.self.ID] == nil {
				missing++
			}
		}
	}
	return missing
}

func TestFiftySeeEachOtherThoughPacketsAreLost(t *testing.T) {
	for _, c := range []struct {
		loss  float64
		limit time.Duration
		most  int // that may still be missing: it is a matter of luck
	}{{0, 150 * time.Millisecond, 0}, {0.1, 10 * time.Second, 10}, {0.3, 40 * time.Second, 20}} {
		a := newAir(t, 50, c.loss)
		a.run(c.limit)
		n := a.strangers()
		t.Logf("loss %v: after %v, %d of 2450 are not seen", c.loss, c.limit, n)
		if n > c.most {
			t.Errorf("want %d at most", c.most)
		}
	}
}

func TestTheLivingStayAndAreQuiet(t *testing.T) {
	for n, hours := range map[int]float64{2: 24, 10: 3, 50: 0.5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { livingStayQuiet(t, n, hours) })
	}
}

func livingStayQuiet(t *testing.T, n int, hours float64) {
	a := newAir(t, n, 0.02)
	a.run(time.Minute)
	for _, s := range a.stations {
		drain(s.cache)
	}
	a.packets = 0
	a.run(time.Duration(hours * float64(time.Hour)))
	for _, s := range a.stations {
		for _, e := range drain(s.cache) {
			if e.Gone {
				t.Errorf("%s takes %s for gone", s.self.Name, e.Name)
			}
		}
	}
	if missing := a.strangers(); missing > 0 {
		t.Errorf("%d are not seen any more", missing)
	}
	perMinute := float64(a.packets) / (60 * hours)
	t.Logf("%.1f packets a minute, all together", perMinute)
	if perMinute > float64(n) {
		t.Errorf("%.1f packets a minute", perMinute)
	}
}

func TestTheSilentlyDeadGoWithTheirTTL(t *testing.T) {
	a := newAir(t, 3, 0)
	a.run(10 * time.Second)
	dead := a.stations[2]
	a.stations = a.stations[:2]
	a.run(recordTTL + 5*time.Second)
	for _, s := range a.stations {
		if s.cache.entries[dead.self.ID] != nil || s.cache.entries[a.stations[0].self.ID] == nil && s != a.stations[0] {
			t.Errorf("%s: %d entries", s.self.Name, len(s.cache.entries))
		}
	}
}

// one responder, alone, at rest, to be asked things.
func settled(t *testing.T) (*air, *responder) {
	a := newAir(t, 1, 0)
	a.run(5 * time.Minute)
	return a, a.stations[0]
}

// answersTo sends packets from a stranger and says after what time the responder sent how many hellos.
func answersTo(t *testing.T, a *air, s *responder, wait time.Duration, packets ...[]byte) (hellos int, after time.Duration) {
	t.Helper()
	for _, p := range packets {
		if _, err := s.receive(a.now, wire, netip.MustParseAddr("192.168.77.200"), p); err != nil {
			t.Fatal(err)
		}
	}
	for d := time.Duration(0); d < wait; d += time.Millisecond {
		out, _, err := s.tick(a.now.Add(d))
		must(t, err)
		for _, o := range out {
			if m, err := parse(o.packet); err == nil && len(m.hellos) == 1 {
				hellos, after = hellos+1, d
			}
		}
	}
	a.now = a.now.Add(wait)
	return hellos, after
}

func TestAnswers(t *testing.T) {
	a, s := settled(t)
	self := s.self.ID
	browse := func(known ...knownAnswer) []byte {
		p, err := composeBrowse(known)
		must(t, err)
		return p[0]
	}
	byName, err := composeAsk([]identity.ID{self})
	must(t, err)
	other, err := composeAsk([]identity.ID{numbered(99)})
	must(t, err)
	for _, c := range []struct {
		name   string
		packet []byte
		hellos int
	}{
		{"who is there", browse(), 1},
		{"who is there besides you", browse(knownAnswer{self, recordTTL}), 0},
		{"who is there besides you, if you still are", browse(knownAnswer{self, recordTTL / 3}), 1},
		{"are you there", byName, 1},
		{"is another there", other, 0},
		{"your address", ask(t, hostName(self), dnsmessage.TypeA), 1},
		{"printers", ask(t, "_ipp._tcp.local.", dnsmessage.TypePTR), 0},
	} {
		hellos, after := answersTo(t, a, s, 2*time.Second, c.packet)
		if hellos != c.hellos {
			t.Errorf("%s: %d answers", c.name, hellos)
		}
		if hellos > 0 && (after < answerDelayMin || after > answerDelayMax+time.Millisecond) {
			t.Errorf("%s: answered after %v", c.name, after)
		}
	}
}

func TestAnswersAreNotRepeatedWithinASecond(t *testing.T) {
	a, s := settled(t)
	p, err := composeBrowse(nil)
	must(t, err)
	if n, _ := answersTo(t, a, s, 150*time.Millisecond, p[0], p[0], p[0]); n != 1 {
		t.Errorf("three questions at once: %d answers", n)
	}
	if n, after := answersTo(t, a, s, 2*time.Second, p[0], p[0]); n != 1 || after < 800*time.Millisecond {
		t.Errorf("again at once: %d answers, after %v", n, after)
	}
	flood := make([][]byte, 5000)
	for i := range flood {
		flood[i] = p[0]
	}
	if n, _ := answersTo(t, a, s, 3*time.Second, flood...); n != 1 {
		t.Errorf("a flood of questions: %d answers", n)
	}
	if n := len(s.links[wire].askers); n > maxAskers+1 {
		t.Errorf("remembers %d askers", n)
	}
}

func TestKnownAnswersInASecondPacketCallTheAnswerOff(t *testing.T) {
	a, s := settled(t)
	known := []knownAnswer{}
	for i := range knownPerPacket {
		known = append(known, knownAnswer{numbered(1000 + i), recordTTL})
	}
	packets, err := composeBrowse(append(known, knownAnswer{s.self.ID, recordTTL}))
	must(t, err)
	if len(packets) != 2 {
		t.Fatalf("%d packets", len(packets))
	}
	if n, _ := answersTo(t, a, s, 2*time.Second, packets...); n != 0 {
		t.Errorf("both packets: %d answers", n)
	}
	if n, after := answersTo(t, a, s, 2*time.Second, packets[0]); n != 1 || after < awaitKnown {
		t.Errorf("the first alone: %d answers, after %v", n, after)
	}
}

func TestAnImpostorIsNoticed(t *testing.T) {
	_, s := settled(t)
	own := s.links[wire].hello
	if impostor, err := s.receive(at(time.Hour), wire, s.address(), own); impostor || err != nil {
		t.Errorf("our own announcement: %v, %v", impostor, err)
	}
	impostor, err := s.receive(at(time.Hour), wire, netip.MustParseAddr("192.168.77.66"), own)
	if !impostor || err != nil || len(s.cache.entries) != 0 {
		t.Errorf("our ID from elsewhere: %v, %v, %d entries", impostor, err, len(s.cache.entries))
	}
}

func TestOnlyChangedLinksStartAnew(t *testing.T) {
	a, s := settled(t)
	eth0 := s.links[wire].lanInterface
	wlan0 := lanInterface{index: 3, name: "wlan0", flags: net.FlagUp, prefixes: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.5/24"), netip.MustParsePrefix("fe80::5/64")}}
	must(t, s.setInterfaces(a.now, []lanInterface{eth0, wlan0}))
	a.now = a.now.Add(answerDelayMax)
	out, _, err := s.tick(a.now)
	must(t, err)
	count := map[linkKey]int{}
	for _, o := range out {
		count[o.link]++
		if m, _ := parse(o.packet); len(m.hellos) == 1 && m.hellos[0].addresses[0] != netip.MustParseAddrPort("10.0.0.5:6450") {
			t.Errorf("announces %v there", m.hellos[0].addresses)
		}
	}
	if count[wire] != 0 || count[wifi] != 2 || count[linkKey{3, true, "wlan0"}] != 2 {
		t.Errorf("sent %v", count)
	}
	if n := len(s.goodbye()); n != 3 {
		t.Errorf("%d goodbyes", n)
	}
}

func TestIsLAN(t *testing.T) {
	usual := lanInterface{name: "eth0", flags: net.FlagUp | net.FlagMulticast | net.FlagBroadcast, prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")}}
	named := func(name string) lanInterface { i := usual; i.name = name; return i }
	for _, name := range []string{"eth0", "enp0s31f6", "wlan0", "wlp2s0", "br0", "bond0", "en0", "usb0", "end0", "vlan20", "eth0.20"} {
		if !named(name).isLAN(nil) {
			t.Errorf("%s is left out", name)
		}
	}
	for _, name := range []string{"lo", "docker0", "cni0", "veth12ab", "kith0", "kith-node", "flannel.1", "cilium_host", "tun0", "wg0", "virbr0",
		"br-0123456789ab", "tailscale0", "cali1234", "podman0", "utun3", "bridge100", "kube-ipvs0"} {
		if named(name).isLAN(nil) {
			t.Errorf("%s is taken for a LAN", name)
		}
	}
	for what, change := range map[string]func(*lanInterface){
		"down":             func(i *lanInterface) { i.flags &^= net.FlagUp },
		"no multicast":     func(i *lanInterface) { i.flags &^= net.FlagMulticast },
		"point to point":   func(i *lanInterface) { i.flags |= net.FlagPointToPoint },
		"loopback":         func(i *lanInterface) { i.flags |= net.FlagLoopback },
		"no address":       func(i *lanInterface) { i.prefixes = nil },
		"renamed tunnel":   func(i *lanInterface) { i.kind = "wireguard" },
		"not a chosen one": func(i *lanInterface) { i.name = "eth1" },
	} {
		i := usual
		change(&i)
		var patterns []string
		if i.name != "eth0" {
			patterns = []string{"eth0", "wl*"}
		}
		if i.isLAN(patterns) {
			t.Errorf("%s passes", what)
		}
	}
	if !named("docker0").isLAN([]string{"docker*"}) {
		t.Error("a pattern does not count")
	}
}
