package fence

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// A wireTap is a raw socket at a link, as a guest with NET_RAW opens it.
type wireTap struct {
	w    *world
	fd   int
	link int
	mac  net.HardwareAddr
}

func (w *world) tap(place, link string) wireTap {
	w.t.Helper()
	l, err := w.net(place).LinkByName(link)
	w.must(err)
	var fd int
	w.in(place, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(binary.NativeEndian.Uint16([]byte{0, 3}))) // ETH_P_ALL
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{0, 3}), Ifindex: l.Attrs().Index})
		}
		return err
	})
	w.t.Cleanup(func() { unix.Close(fd) })
	return wireTap{w: w, fd: fd, link: l.Attrs().Index, mac: l.Attrs().HardwareAddr}
}

var everybody = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// frame sends what comes behind the header of Ethernet.
func (p wireTap) frame(to, from net.HardwareAddr, kind uint16, body []byte) {
	p.w.t.Helper()
	b := append(append([]byte{}, to...), from...)
	b = append(binary.BigEndian.AppendUint16(b, kind), body...)
	p.w.must(unix.Sendto(p.fd, b, 0, &unix.SockaddrLinklayer{Ifindex: p.link}))
}

// whoHas asks for an address in the name of another.
func (p wireTap) whoHas(target, sender netip.Addr) {
	p.w.t.Helper()
	body := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	body = append(append(body, p.mac...), sender.AsSlice()...)
	body = append(append(body, 0, 0, 0, 0, 0, 0), target.AsSlice()...)
	p.frame(everybody, p.mac, unix.ETH_P_ARP, body)
}

// answered reports whether somebody says to have the address, as is to be or not.
func (p wireTap) answered(target netip.Addr, comes bool) bool {
	p.w.must(unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}))
	buf := make([]byte, 2048)
	for end := time.Now().Add(within(comes)); time.Now().Before(end); {
		n, _, err := unix.Recvfrom(p.fd, buf, 0)
		if err != nil || n < 42 || binary.BigEndian.Uint16(buf[12:]) != unix.ETH_P_ARP || buf[21] != 2 {
			continue
		}
		if a, _ := netip.AddrFromSlice(buf[28:32]); a == target {
			return true
		}
	}
	return false
}

// known counts the neighbours that a place has on a link.
func (w *world) known(place, link string, family int) int {
	w.t.Helper()
	h := w.net(place)
	l, err := h.LinkByName(link)
	w.must(err)
	list, err := h.NeighList(l.Attrs().Index, family)
	w.must(err)
	return len(list)
}

// forge asks for an address in many invented names.
func (p wireTap) forge(target netip.Addr, second byte) {
	for i := range 400 {
		p.whoHas(target, netip.AddrFrom4([4]byte{10, second, byte(i >> 8), byte(i)}))
		if i%50 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	time.Sleep(50 * time.Millisecond)
}

// A neighbour that was invented is an entry of the machine's only table, and an answer about another link's address tells a guest where its provider is.
func TestAGuestIsOneNeighbourAndLearnsNoOtherAddress(t *testing.T) {
	w := newWorld(t)
	addr := netip.MustParseAddr
	w.tap("web1", "eth0").forge(addr(gateway1), 200)
	if n := w.known("host", "vweb1", unix.AF_INET); n < 300 {
		t.Fatalf("without a fence, 400 invented senders made %d neighbours", n)
	}
	guest := w.tap("web1", "eth0")
	guest.whoHas(addr(hostLAN), addr(web1))
	if !guest.answered(addr(hostLAN), true) {
		t.Fatal("without a fence, the laptop does not answer for its address on the LAN")
	}
	w.must(w.fence.Set(twoTenants()))
	for _, name := range []string{"job", "newcomer"} { // of a pair that is known, and not
		before := w.known("host", "v"+name, unix.AF_INET)
		w.tap(name, "eth0").forge(addr(gateway2), 201)
		w.tap(name, "eth0").forge(addr("10.65.3.1"), 202)
		if n := w.known("host", "v"+name, unix.AF_INET) - before; n > 1 {
			t.Errorf("800 senders that %s invented made %d neighbours", name, n)
		}
	}
	guest.whoHas(addr(hostLAN), addr(web1))
	if guest.answered(addr(hostLAN), false) {
		t.Error("the laptop answers a guest for its address on the LAN")
	}
	guest.whoHas(addr(gateway1), addr(web1))
	if !guest.answered(addr(gateway1), true) {
		t.Error("a guest does not find the other end of its link")
	}
	w.expect("web1", web2, "web2")

	// One whose link the fence was not told of yet, kithd does not run: it finds its way, and invents few.
	w.make("late")
	w.guest("late", "10.65.1.40")
	w.serve("late")
	w.expect("late", homePod, "alice")
	w.tap("late", "eth0").forge(addr(gateway1), 203)
	if n := w.known("host", "vlate", unix.AF_INET); n > 30 {
		t.Errorf("400 senders that a new guest invented made %d neighbours", n)
	}
	w.must(w.fence.Set(twoTenants()))
	before := w.known("host", "vlate", unix.AF_INET)
	w.tap("late", "eth0").forge(addr(gateway1), 204)
	if n := w.known("host", "vlate", unix.AF_INET) - before; n > 1 {
		t.Errorf("400 senders that a guest invented made %d neighbours more", n)
	}
}

// By IPv6 the sender of a solicitation is a neighbour, too.
func TestAGuestInventsFewNeighboursByIPv6(t *testing.T) {
	w := newWorldOf(t, true)
	forge := func(name, gateway, prefix string) {
		p := w.tap(name, "eth0")
		h := w.net("host")
		l, err := h.LinkByName("v" + name)
		w.must(err)
		target := sixOf(netip.MustParseAddr(gateway))
		for i := range 400 {
			src := netip.MustParseAddr(prefix).As16()
			binary.BigEndian.PutUint16(src[12:], uint16(i+1))
			from := netip.AddrFrom16(src)
			body := append([]byte{0, 0, 0, 0}, target.AsSlice()...)
			body = append(append(body, 1, 1), p.mac...)
			m, err := (&icmp.Message{Type: ipv6.ICMPTypeNeighborSolicitation, Body: &icmp.RawBody{Data: body}}).Marshal(icmp.IPv6PseudoHeader(from.AsSlice(), target.AsSlice()))
			w.must(err)
			head := []byte{0x60, 0, 0, 0, 0, byte(len(m)), unix.IPPROTO_ICMPV6, 255}
			head = append(append(head, from.AsSlice()...), target.AsSlice()...)
			p.frame(l.Attrs().HardwareAddr, p.mac, unix.ETH_P_IPV6, append(head, m...))
		}
		time.Sleep(50 * time.Millisecond)
	}
	forge("web1", gateway1, "fe80::")
	if n := w.known("host", "vweb1", unix.AF_INET6); n < 300 {
		t.Fatalf("without a fence, 400 invented senders made %d neighbours", n)
	}
	w.must(w.fence.Set(six6(twoTenants())))
	for _, prefix := range []string{"fe80::", "2001:db8:77::", "fd65:1:77::"} {
		before := w.known("host", "vjob", unix.AF_INET6)
		forge("job", gateway2, prefix)
		if n := w.known("host", "vjob", unix.AF_INET6) - before; n > 15 {
			t.Errorf("400 invented senders in %s made %d neighbours", prefix, n)
		}
	}
	w.expect("web1", web2, "web2")
	w.expect("job", homePod, "dora")
}

// setting writes a setting of the host's network.
func (w *world) setting(place, path, value string) {
	w.t.Helper()
	w.in(place, func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) })
}
