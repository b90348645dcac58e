package mdns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func TestLAN(t *testing.T) {
	const n = 8
	l := newLab(t, n)
	first, rest := l.laptops[0], l.laptops[1:]
	newcomer, early := rest[len(rest)-1], l.laptops[:n-1]

	begin := time.Now()
	for _, p := range early {
		p.start()
	}
	t.Logf("%d start together: all see all after %v", len(early), l.all(begin, early, early, here))

	time.Sleep(2 * time.Second)
	newcomer.start()
	us := []*laptop{newcomer}
	t.Logf("a newcomer sees all after %v", l.all(newcomer.started, us, early, here))
	t.Logf("all see the newcomer after %v", l.all(newcomer.started, early, us, here))

	at := newcomer.stop()
	t.Logf("all see it gone after %v", l.all(at, early, us, gone))
	newcomer.start()
	l.all(newcomer.started, early, us, here)

	one := []*laptop{first}
	at = time.Now()
	first.address("192.168.77.201/24")
	t.Logf("all see a new address after %v", l.all(at, rest, one, hereAt("192.168.77.201:6450")))

	first.unplug()
	time.Sleep(500 * time.Millisecond)
	at = time.Now()
	first.plug(100, "192.168.77.202/24")
	t.Logf("all see a replaced link after %v", l.all(at, rest, one, hereAt("192.168.77.202:6450")))
	at = newcomer.stop()
	l.all(at, one, us, gone) // the replaced link is heard as well
	newcomer.start()
	l.all(newcomer.started, one, us, here)

	at = time.Now()
	for _, p := range rest {
		must(t, p.process.Process.Signal(syscall.SIGTERM))
	}
	t.Logf("all the others leave at once: seen after %v", l.all(at, one, rest, gone))
	for _, p := range l.laptops {
		if p.process != nil {
			p.stop()
		}
	}
}

// TestLANWithoutIPv4 has nothing but link-local addresses at first. Then there is a router that advertises a network, and machines
// that keep themselves private make temporary addresses of it, which are not told; nor are those of a network that goes.
func TestLANWithoutIPv4(t *testing.T) {
	l := newLab(t, 3)
	one, others := l.laptops[:1], l.laptops[1:]
	eth0 := map[*laptop]netlink.Link{}
	for i, p := range l.laptops {
		link, err := p.net.LinkByName("eth0")
		must(t, err)
		eth0[p] = link
		a, err := netlink.ParseAddr(fmt.Sprintf("192.168.77.%d/24", i+1))
		must(t, err)
		must(t, p.net.AddrDel(link, a))
		p.in(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/eth0/use_tempaddr", []byte("2"), 0) })
	}
	linkLocal := l.laptops[0].kernelHas(func(a netlink.Addr) bool { return a.IP.IsLinkLocalUnicast() })
	only := func(want ...string) func(seen) bool {
		return func(s seen) bool { return !s.Gone && slices.Equal(s.Addresses, ports(want...)) }
	}
	begin := time.Now()
	for _, p := range l.laptops {
		p.start()
	}
	t.Logf("all see all after %v", l.all(begin, l.laptops, l.laptops, here))
	l.all(begin, others, one, only("["+linkLocal+"%eth0]:6450"))

	at := time.Now()
	advertised := map[*laptop]*netlink.Addr{}
	for i, p := range l.laptops {
		a, err := netlink.ParseAddr(fmt.Sprintf("fd00:77::%d/64", i+1))
		must(t, err)
		a.Flags, a.ValidLft, a.PreferedLft = unix.IFA_F_NODAD|unix.IFA_F_MANAGETEMPADDR, 7200, 3600
		must(t, p.net.AddrAdd(eth0[p], a))
		advertised[p] = a
	}
	t.Log("also has " + l.laptops[0].kernelHas(func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TEMPORARY != 0 }))
	l.all(at, others, one, only("[fd00:77::1]:6450", "["+linkLocal+"%eth0]:6450"))

	at = time.Now()
	leaving := advertised[l.laptops[0]]
	leaving.PreferedLft = 0
	must(t, l.laptops[0].net.AddrReplace(eth0[l.laptops[0]], leaving))
	l.all(at, others, one, only("["+linkLocal+"%eth0]:6450"))
	for _, p := range others {
		p.mu.Lock()
		for _, s := range p.events {
			for _, a := range s.Addresses {
				if a.Addr().Is4() || !a.Addr().IsLinkLocalUnicast() && a.Addr().As16()[15] > 3 {
					t.Errorf("%s was told of %s of %s", p.name, a, s.Name)
				}
			}
		}
		p.mu.Unlock()
	}
}

func TestLANBesideAnotherResponder(t *testing.T) {
	l := newLab(t, 2)
	for _, p := range l.laptops {
		// Another daemon has the port already, as avahi-daemon does.
		runtime.LockOSThread()
		home, err := netns.Get()
		must(t, err)
		must(t, netns.Set(p.ns))
		eth0, err := net.InterfaceByName("eth0")
		must(t, err)
		other, err := net.ListenMulticastUDP("udp4", eth0, group4)
		must(t, netns.Set(home))
		runtime.UnlockOSThread()
		home.Close()
		must(t, err)
		defer other.Close()
	}
	begin := time.Now()
	for _, p := range l.laptops {
		p.start()
	}
	l.all(begin, l.laptops, l.laptops, here)
}

// Ten thousand spoofed announcements, from fifty addresses, in about ten seconds: the wire carries six
// times what a minute may bring.
func TestLANFlood(t *testing.T) {
	l := newLab(t, 3)
	alice, bob, mallory := l.laptops[0], l.laptops[1], l.laptops[2]
	alice.trusts = bob.name
	alice.start()
	time.Sleep(3 * time.Second) // IPv6 is ready, the link at rest
	memory := alice.heap()
	eth0, err := mallory.net.LinkByName("eth0")
	must(t, err)
	for i := range 50 {
		a, err := netlink.ParseAddr(fmt.Sprintf("192.168.77.%d/24", 100+i))
		must(t, err)
		must(t, mallory.net.AddrAdd(eth0, a))
	}
	conns, begin := mallory.sockets(50), time.Now()
	go func() {
		time.Sleep(3 * time.Second)
		bob.start()
	}()
	for i := range 10_000 {
		// An address of the link: what announces none is not heard at all.
		packet := compose(t, txtOf(numbered(i), "x"), netip.AddrFrom4([4]byte{192, 168, 77, byte(3 + i%250)}))
		if _, err := conns[i%len(conns)].WriteTo(packet, group4); err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Microsecond)
	}
	l.all(bob.started, []*laptop{alice}, []*laptop{bob}, here)
	alice.mu.Lock()
	events := len(alice.events)
	alice.mu.Unlock()
	grown, took := alice.heap()-memory, time.Since(begin)
	t.Logf("10 000 spoofed in %v: %d events, what lives in memory grew by %d KiB; a peer with a contract was seen at once", took, events, grown)
	// As many as fit are heard, or the flood did not reach alice.
	if most := strangersBurst + int(took.Seconds()+1)*strangersSecond + 20; events < strangersBurst || events > most || grown > 1<<10 {
		t.Errorf("%d events (%d to %d), %d KiB", events, strangersBurst, most, grown)
	}
}
