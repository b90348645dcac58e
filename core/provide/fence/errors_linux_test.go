package fence

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
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

// broken reports whether an ICMP error reached the flow, as it is to or not.
func (f *flow) broken(comes bool) bool {
	_ = f.c.SetReadDeadline(time.Now().Add(within(comes)))
	_, err := f.c.Read(make([]byte, 16))
	return errors.Is(err, syscall.ECONNREFUSED)
}

// refuse sends an ICMP port unreachable from a place, under one of its addresses, that quotes a packet of the flow to its
// sender, as if it had come by. Guests see the owner's pods under the host's address in their range.
func (w *world) refuse(place, source string, f *flow) {
	w.t.Helper()
	src, dst := *f.c.LocalAddr().(*net.UDPAddr), f.c.RemoteAddr().(*net.UDPAddr)
	if to := dst.IP.String(); to == source && src.IP.String() == ownPod && (to == web1 || to == job) {
		src.IP = net.ParseIP(map[string]string{web1: gateway1, job: gateway2}[to])
	}
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
	attacks := []struct {
		what             string
		victim, at, with string // who talks, from which address, with whom
		from, as         string // who says that it does not work
	}{
		{"a guest, about this laptop and the internet", "host", hostLAN, internet, "web1", web1},
		{"a guest, about this laptop and another tenant's guest", "host", gateway2, job, "web1", web1},
		{"a guest, about another tenant's guest and its home", "job", job, homePod, "web1", web1},
		{"a guest nobody knows, about the owner's pod", "own", ownPod, internet, "newcomer", newcomerIP},
		{"a consumer's home, about the owner's pod and the internet", "own", ownOther, internet, "alice", homeOther},
		{"a consumer's home, about this laptop and the internet", "host", hostLAN, internet, "alice", homeOther},
		{"a consumer's home, about its guest and the internet", "web1", web1, internet, "carol", carols},
		{"a provider, about the owner's pod and a guest", "own", ownPod, job, "carol", carols},
		{"a provider, about the owner's pod and the internet", "own", ownPod, internet, "carol", carols},
		{"a provider, about the owner's pod and one at another", "own", ownPod, beas, "carol", carols},
		{"a provider, about one of ours at another", "bea", beas, ownPod, "carol", carols},
	}
	for _, a := range attacks {
		f := w.flow(a.victim, a.at, a.with)
		if w.refuse(a.from, a.as, f); !f.broken(true) {
			t.Fatalf("without a fence, %s: the error did not arrive", a.what)
		}
	}
	w.must(w.fence.Set(both()))
	var done sync.WaitGroup
	for _, a := range attacks {
		done.Go(func() {
			f := w.flow(a.victim, a.at, a.with)
			if w.refuse(a.from, a.as, f); f.broken(false) {
				t.Errorf("%s: heard", a.what)
			}
			if err := f.say(); err != nil {
				t.Errorf("%s: %v", a.what, err)
			}
		})
	}
	done.Wait()
	for _, c := range []struct {
		what             string
		victim, at, with string
		from, as         string
	}{
		{"a guest, about what was sent to it", "own", ownPod, web1, "web1", web1},
		{"a guest, to its laptop's probe", "host", gateway1, web1, "web1", web1},
		{"a consumer's home, to its guest", "web1", web1, homePod, "alice", homePod},
		{"a router of the consumer's, to its guest", "web1", web1, homePod, "alice", homeOther},
		{"a guest, to its home", "alice", homeOther, web1, "web1", web1},
		{"an own pod at a provider, to an own pod", "own", ownPod, beas, "bea", beas},
		{"an own pod, to one at a provider", "bea", beas, ownPod, "own", ownPod},
		{"an own pod at a provider, to one at another", "bea", beas, carols, "carol", carols},
	} {
		f := w.flow(c.victim, c.at, c.with)
		if w.refuse(c.from, c.as, f); !f.broken(true) {
			t.Errorf("%s: not heard", c.what)
		}
	}
}
