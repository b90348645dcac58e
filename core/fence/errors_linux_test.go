package fence

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flow is a UDP connection over which something came and went.
type flow struct {
	c *net.UDPConn
}

func (w *world) flow(from, source, to string) *flow {
	w.t.Helper()
	f := &flow{}
	w.in(from, func() (err error) {
		f.c, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(source)}, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to+":10053")))
		return err
	})
	w.t.Cleanup(func() { f.c.Close() })
	if err := f.say(); err != nil {
		w.t.Fatalf("%s to %s: %v", from, to, err)
	}
	return f
}

func (f *flow) say() error {
	if _, err := f.c.Write([]byte("hello")); err != nil {
		return err
	}
	_ = f.c.SetReadDeadline(time.Now().Add(patience))
	_, err := f.c.Read(make([]byte, 16))
	return err
}

// broken reports whether an ICMP error reached the flow.
func (f *flow) broken() bool {
	_ = f.c.SetReadDeadline(time.Now().Add(patience))
	_, err := f.c.Read(make([]byte, 16))
	return errors.Is(err, syscall.ECONNREFUSED)
}

// refuse sends an ICMP port unreachable from a place, under one of its addresses, that quotes a packet of the flow to its
// sender, as if it had come by.
func (w *world) refuse(place, source string, f *flow) {
	w.t.Helper()
	src, dst := f.c.LocalAddr().(*net.UDPAddr), f.c.RemoteAddr().(*net.UDPAddr)
	m := make([]byte, 8+20+8)
	m[0], m[1] = 3, 3
	quote := m[8:]
	quote[0], quote[3], quote[8], quote[9] = 0x45, 28, 64, unix.IPPROTO_UDP
	copy(quote[12:], src.IP.To4())
	copy(quote[16:], dst.IP.To4())
	binary.BigEndian.PutUint16(quote[10:], checksum(quote[:20]))
	binary.BigEndian.PutUint16(quote[20:], uint16(src.Port))
	binary.BigEndian.PutUint16(quote[22:], uint16(dst.Port))
	quote[25] = 8
	binary.BigEndian.PutUint16(m[2:], checksum(m))
	w.in(place, func() error {
		c, err := net.DialIP("ip4:icmp", &net.IPAddr{IP: net.ParseIP(source)}, &net.IPAddr{IP: src.IP})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(m)
		return err
	})
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func TestErrorsAreHeardFromTheEndsOfAConnectionOnly(t *testing.T) {
	w := newWorld(t)
	w.route("far", hostLAN+"/32", "10.42.255.2")
	attacks := []struct {
		what             string
		victim, at, with string // who talks, from which address, with whom
		from, as         string // who says that it does not work
	}{
		{"a guest, about the owner's pod and the internet", "own", ownPod, internet, "web1", web1},
		{"a guest, about this laptop and the internet", "host", hostLAN, internet, "web1", web1},
		{"a guest, about this laptop and another tenant's guest", "host", nodeIP, dora, "web1", web1},
		{"a guest, about the owner's pod and another tenant's guest", "own", ownPod, dora, "web1", web1},
		{"a provider, about the owner's pod and a guest", "own", ownPod, dora, "far", provider},
		{"a guest, about another tenant's guest and its home", "dora", dora, doraHome, "web1", web1},
		{"a guest nobody knows, about the owner's pod", "own", ownPod, internet, "newcomer", newcomerIP},
		{"a consumer's home, about the owner's pod and the internet", "own", ownPod, internet, "far", aliceHome},
		{"a consumer's home, about this laptop and the internet", "host", hostLAN, internet, "far", aliceHome},
		{"a consumer's home, about another tenant's guest", "dora", dora, doraHome, "far", aliceHome},
		{"a provider, about the owner's pod and the internet", "own", ownPod, internet, "far", provider},
	}
	for _, a := range attacks {
		f := w.flow(a.victim, a.at, a.with)
		if w.refuse(a.from, a.as, f); !f.broken() {
			t.Fatalf("without a fence, %s: the error did not arrive", a.what)
		}
	}
	w.must(w.fence.Set(both()))
	for _, a := range attacks {
		f := w.flow(a.victim, a.at, a.with)
		if w.refuse(a.from, a.as, f); f.broken() {
			t.Errorf("%s: heard", a.what)
		}
		if err := f.say(); err != nil {
			t.Errorf("%s: %v", a.what, err)
		}
	}
	for _, c := range []struct {
		what             string
		victim, at, with string
		from, as         string
	}{
		{"a guest, about what was sent to it", "own", ownPod, web1, "web1", web1},
		{"a guest, to its laptop's probe", "host", nodeIP, web1, "web1", web1},
		{"a consumer's home, to its guest", "web1", web1, aliceHome, "far", aliceHome},
		{"a router of the consumer's, to its guest", "web1", web1, aliceHome, "far", "10.76.255.130"},
		{"a guest, to its home", "far", aliceHome, web1, "web1", web1},
		{"an own pod at a provider, to an own pod", "own", ownPod, provider, "far", provider},
		{"an own pod, to one at a provider", "far", provider, ownPod, "own", ownPod},
	} {
		f := w.flow(c.victim, c.at, c.with)
		if w.refuse(c.from, c.as, f); !f.broken() {
			t.Errorf("%s: not heard", c.what)
		}
	}
}
