package guestnet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
)

func TestGuestsLiveInTheAddressSpaceOfTheirHome(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.Set(services))
	for _, c := range []struct{ what, from, to, want string }{
		{"a pod at home, and not the owner's of that address", "web", pod + ":8080", "alice " + web},
		{"the node at home, and not this one", "web", node + ":8080", "alice " + web},
		{"another home's guest to its own", "dora", pod + ":8080", "dora's " + dora},
		{"a service at home", "web", "10.43.9.9:80", "alice " + web},
		{"the same address means another service to another home", "dora", "10.43.9.9:80", "dora's " + dora},
		{"a service with a guest here behind it", "web", "10.43.9.8:80", "db " + web},
		{"by its own service to itself", "web", "10.43.9.7:80", "web 10.127.0.1"},
		{"an address of a service at home that is a twin's here", "web", "10.43.7.7:80", "db " + web},
		{"a service of the owner's, of an address that home has not", "web", "10.43.9.50:80", ""},
		{"a twin of another home's", "dora", "10.43.7.8:80", ""},
		{"the cluster's DNS", "web", "10.43.0.10:53", "host " + web},
		{"DNS, of whoever", "dora", "10.43.0.10:53", "host " + dora},
		{"the host, at the guest's link", "web", "10.127.0.1:8080", "host " + web},
		{"from home's pod", "alice", web + ":8080", "web " + pod},
		{"a probe", "host", web + ":8080", "web 10.127.0.1"},
		{"the owner's pod asks a guest", "own", web + ":8080", "web 10.127.0.1"},
		{"the owner's pod asks another home's", "own", dora + ":8080", "dora 10.127.4.1"},
		{"the owner's pod, by a service", "own", "10.43.7.8:80", "db 10.127.0.1"},
		{"a port of the host", "lan", laptop + ":30080", "web " + neighbour},
	} {
		if got := w.ask(c.from, c.to); got != c.want {
			t.Errorf("%s: %s at %s: %q, want %q", c.what, c.from, c.to, got, c.want)
		}
	}
	for _, c := range []struct{ from, to, want string }{
		{"web", pod + ":8080", "alice " + web}, {"web", "10.43.9.9:80", "alice " + web},
		{"web", "10.43.0.10:53", "host " + web}, {"own", web + ":8080", "web 10.127.0.1"},
	} {
		if got := w.askUDP(c.from, c.to); got != c.want+" from "+c.to {
			t.Errorf("by UDP %s at %s: %q, want %q from there", c.from, c.to, got, c.want)
		}
	}
}

// TestAStreamThroughAServiceIsWhole: checksums fit, also of segments that the kernel cuts later.
func TestAStreamThroughAServiceIsWhole(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.Set(services))
	for _, to := range []string{"10.43.9.9:80", "10.43.9.8:80"} {
		w.must(w.in("web", func() error {
			c, err := net.Dial("tcp4", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
			sent := make([]byte, 4<<20)
			_, _ = rand.Read(sent)
			go func() {
				_, _ = c.Write(sent)
				_ = c.(*net.TCPConn).CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if _, after, _ := bytes.Cut(got, []byte("\n")); !bytes.Equal(after, sent) {
				t.Errorf("%s: %d bytes came back of %d, %v", to, len(after), len(sent), err)
			}
			return err
		}))
	}
}

// TestErrorsAboutServicesArrive: an error quotes the packet that it is about, and who gets it finds the socket by that.
func TestErrorsAboutServicesArrive(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.Set(services))
	w.refused(t)
	// An answer that nobody waits for any more: the guest says so to the service, and the pod at home hears it of the guest.
	var errs net.PacketConn
	w.must(w.in("alice", func() (err error) { errs, err = net.ListenPacket("ip4:icmp", pod); return err }))
	defer errs.Close()
	w.must(w.in("web", func() error {
		c, err := net.ListenPacket("ip4:udp", web) // with no socket that an answer could be in time for
		if err != nil {
			return err
		}
		hello := binary.BigEndian.AppendUint16(nil, 40000)
		hello = binary.BigEndian.AppendUint16(hello, 80)
		hello = binary.BigEndian.AppendUint16(hello, 8+5)
		hello = append(hello, 0, 0) // no checksum (RFC 768)
		_, err = c.WriteTo(append(hello, "hello"...), &net.IPAddr{IP: net.IPv4(10, 43, 9, 9)})
		return errors.Join(err, c.Close())
	}))
	_ = errs.SetDeadline(time.Now().Add(2 * time.Second))
	b := make([]byte, 200)
	for {
		n, from, err := errs.ReadFrom(b)
		if err != nil {
			t.Fatalf("the pod at home heard of no error: %v", err)
		}
		if from.String() != web || n < 28 || b[0] != 3 {
			continue // what it says itself about the port that is closed
		}
		source, _ := netip.AddrFromSlice(b[8+12 : 8+16])
		to, _ := netip.AddrFromSlice(b[8+16 : 8+20])
		if source.String() != pod || to.String() != web {
			t.Errorf("it quotes a packet from %s to %s", source, to)
		}
		break
	}
}

// refused has a guest ask a port that is closed at the pod, and one that the service does not have.
func (w *world) refused(t *testing.T) {
	t.Helper()
	for _, to := range []string{"10.43.9.9:81", "10.43.9.9:82"} {
		err := w.in("web", func() error {
			c, err := net.Dial("udp4", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			if _, err = c.Write([]byte("hello")); err == nil {
				_, err = c.Read(make([]byte, 10))
			}
			return err
		})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v, want connection refused", to, err)
		}
	}
}

// TestMarksOfOthersStay: kube-proxy, VPNs and network plugins have bits of their own in both marks.
func TestMarksOfOthersStay(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.Set(services))
	w.nft(`table ip others {
  counter kept {}
  counter lost {}
  chain before { type filter hook prerouting priority -160; meta mark set 0x40000; ct mark set ct mark | 0x80; }
  chain after { type filter hook prerouting priority -90; iifname "vweb" meta mark != { 0x40000, 0x10040000 } counter name lost; iifname "vweb" meta mark 0x10040000 counter name kept; }
  chain last { type filter hook postrouting priority 300; ct mark & 0x80 == 0 ct direction reply counter name lost; ct mark 0x10000080 ct direction reply counter name kept; }
}`)
	for _, c := range [][2]string{{"own", web + ":8080"}, {"web", "10.43.0.10:53"}, {"web", "10.43.9.9:80"}} {
		if w.ask(c[0], c[1]) == "" {
			t.Errorf("%s does not reach %s", c[0], c[1])
		}
	}
	list := w.nft("list counters table ip others")
	if kept, lost := strings.Index(list, "kept"), strings.Index(list, "lost"); kept < 0 || strings.HasPrefix(packets(list[kept:]), "0") || !strings.HasPrefix(packets(list[lost:]), "0") {
		t.Errorf("%s", list)
	}
}

func packets(counter string) string {
	_, n, _ := strings.Cut(counter, "packets ")
	return n
}

// TestServicesChangeUnderWay: only elements do, so connections go on.
func TestServicesChangeUnderWay(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.Set(services))
	var c net.Conn
	w.must(w.in("web", func() (err error) { c, err = net.Dial("tcp4", "10.43.9.9:80"); return err }))
	defer c.Close()
	handles := w.handles()
	many := Services{}
	for n := range 2000 {
		many[netip.AddrFrom4([4]byte{10, 43, 100 + byte(n>>8), byte(n)})] = netip.AddrFrom4([4]byte{10, 43, 200 + byte(n>>8), byte(n)})
	}
	for home, here := range services[0].Services {
		many[home] = here
	}
	w.must(w.kernel.Set([]Tenant{{Guests: ofAlice, Services: many}, services[1]}))
	if got := w.ask("web", "10.43.9.8:80"); got != "db "+web {
		t.Errorf("among many: %q", got)
	}
	w.must(w.kernel.Set([]Tenant{{Guests: ofAlice, Services: Services{addr("10.43.9.9"): addr("10.43.7.7"), addr("10.43.9.8"): addr("10.43.7.9")}}}))
	for to, want := range map[string]string{"10.43.9.8:80": "web 10.127.0.1", "10.43.9.7:80": ""} {
		if got := w.ask("web", to); got != want {
			t.Errorf("%s: %q, want %q", to, got, want)
		}
	}
	if got := w.ask("dora", "10.43.9.9:80"); got != "" {
		t.Errorf("a home that is gone: %q", got)
	}
	if got := w.handles(); got != handles {
		t.Errorf("the table was made anew:\n%s\n%s", handles, got)
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte("still here?")); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(io.LimitReader(c, int64(len("alice "+web+"\nstill here?")))); err != nil || !strings.HasSuffix(string(got), "still here?") {
		t.Errorf("the connection of before: %q, %v", got, err)
	}
}

// handles are those of the table's rules, in their order.
func (w *world) handles() string {
	w.t.Helper()
	conn, err := nftables.New()
	w.must(err)
	var all strings.Builder
	in := &nftables.Table{Name: Table, Family: nftables.TableFamilyIPv4}
	for _, ch := range tables(laptops, nil)[0].Chains {
		rules, err := conn.GetRules(in, &nftables.Chain{Name: ch.Name, Table: in})
		w.must(err)
		for _, r := range rules {
			fmt.Fprintln(&all, ch.Name, r.Handle)
		}
	}
	return all.String()
}

// TestTheTableSurvivesKithdAndIsPutBack.
func TestTheTableSurvivesKithdAndIsPutBack(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.Set(services))
	next := New(laptops, silent)
	w.must(next.Raise())
	if got := w.ask("web", "10.43.9.9:80"); got != "alice "+web {
		t.Errorf("the next kithd took the services away before it knows them: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.in("host", func() error { return next.Run(ctx) }) }()
	if got := w.ask("web", "10.43.9.9:80"); got != "alice "+web {
		t.Errorf("it took them away when it watched: %q", got)
	}
	w.must(next.Set(services[:1]))
	if got := w.ask("dora", "10.43.9.9:80"); got != "" {
		t.Errorf("what it says does not hold: %q", got)
	}
	for _, script := range []string{"delete table ip " + Table, "flush table ip " + Table + "\ndelete chain ip " + Table + " there"} {
		w.nft(script)
		got := ""
		back := false // an answer alone does not show it: one came under load while there was no table
		for until := time.Now().Add(5 * time.Second); (got == "" || !back) && time.Now().Before(until); {
			got = w.ask("web", "10.43.9.9:80")
			back = w.there()
		}
		if got != "alice "+web || !back {
			t.Errorf("after %q: %q; the table is back: %t", script, got, back)
		}
	}
	w.nft("delete table ip " + Table)
	w.must(next.Set(services)) // before it heard of that, or after
	if got := w.ask("dora", "10.43.9.9:80"); got != "dora's "+dora {
		t.Errorf("set while it was away: %q", got)
	}
	cancel()
	w.must(<-ended)
	if got := w.ask("web", "10.43.9.9:80"); got != "alice "+web {
		t.Errorf("after its end: %q", got)
	}
}
