package translate

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"kith.dev/core/net/netplan"
	"kith.dev/core/provide/guestnet"
)

// both homes have the same ranges, of pods and of services; that of services is the node's cluster's, too.
func both() []Tenant {
	return []Tenant{
		{
			Consumer: "alice", Guests: []netip.Addr{addr(web), addr(db)}, All: []netip.Addr{addr(web), addr(db)},
			Services: guestnet.Services{addr("10.43.9.9"): addr("10.43.7.7"), addr("10.43.9.8"): addr("10.43.7.8"), addr("10.43.9.7"): addr("10.43.7.9"), addr("10.43.7.7"): addr("10.43.7.1")},
			Ranges:   []netplan.Mapping{mapping("guests", "198.19.0.0/16", "10.42.0.0/16"), mapping("pods", "10.99.0.0/16", "10.71.0.0/16"), mapping("more", "10.42.0.0/16", "10.73.0.0/16")},
		},
		{
			Consumer: "dora", Guests: []netip.Addr{addr(dora)}, All: []netip.Addr{addr(dora)}, Services: guestnet.Services{addr("10.43.9.9"): addr("10.43.6.6")},
			Ranges: []netplan.Mapping{mapping("guests", "198.18.0.0/16", "10.42.0.0/16"), mapping("pods", "10.99.0.0/16", "10.72.0.0/16")},
		},
	}
}

func TestGuestsReachTheirHomeByItsAddresses(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.set(both()))
	for _, c := range []struct{ what, from, to, want string }{
		{"a service at home", "web", "10.43.9.9:80", "alice " + web},
		{"the same address means another service to another home", "dora", "10.43.9.9:80", "dora's " + dora},
		{"and to the node the owner's", "host", "10.43.9.9:80", "own " + node},
		{"a service with a guest here behind it", "web", "10.43.9.8:80", "db " + web},
		{"an address at home that is a twin's here", "web", "10.43.7.7:80", "db " + web},
		{"a pod at home", "web", "10.99.0.5:8080", "alice " + web},
		{"home's node, in a range that pods have here", "web", "10.42.255.1:8080", "alice " + web},
		{"the owner's pod means itself to another home's guest", "dora", own + ":8080", "own " + dora},
		{"and a pod at home to a guest whose home has the range", "web", "10.42.255.9:8080", ""},
		{"the same address at another home", "dora", "10.99.0.5:8080", "dora's " + dora},
		{"another guest, beside it", "web", "198.19.0.3:8080", "db " + web},
		{"by its own service to itself", "web", "10.43.9.7:80", "web " + node},
		{"itself", "web", "198.19.0.2:8080", "web " + node},
		{"a guest, by the range of another home", "web", "198.18.0.4:8080", ""},
		{"a service that home has not, the owner's of that address neither", "web", "10.43.9.50:80", ""},
		{"by the names here: a twin", "web", "10.43.7.8:80", "db " + web},
		{"a pod", "web", atAlice + ":8080", "alice " + web},
		{"and a guest", "db", web + ":8080", "web " + db},
		{"home asks a guest", "alice", web + ":8080", "web " + atAlice},
		{"the owner's pod, a probe", "own", web + ":8080", "web " + own},
		{"the node", "host", web + ":8080", "web " + node},
		{"the owner's pods have no way to a home", "own", "10.99.0.5:8080", ""},
	} {
		if got := w.ask(c.from, c.to); got != c.want {
			t.Errorf("%s: %s at %s: %q, want %q", c.what, c.from, c.to, got, c.want)
		}
	}
	for _, c := range []struct{ from, to, want string }{
		{"web", "10.43.9.9:80", "alice " + web}, {"web", "10.99.0.5:8080", "alice " + web}, {"web", "198.19.0.3:8080", "db " + web}, {"web", "198.19.0.2:8080", "web " + node},
		{"web", atAlice + ":8080", "alice " + web}, {"db", web + ":8080", "web " + db}, {"own", web + ":8080", "web " + own},
	} {
		if got := w.askUDP(c.from, c.to); got != c.want+" from "+c.to {
			t.Errorf("by UDP %s at %s: %q, want %q from there", c.from, c.to, got, c.want)
		}
	}
}

// TestAStreamByAnAddressOfHomeIsWhole: checksums fit, also of segments that the kernel cuts later.
func TestAStreamByAnAddressOfHomeIsWhole(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.set(both()))
	for _, to := range []string{"10.43.9.9:80", "10.43.9.8:80", "10.99.0.5:8080", "198.19.0.3:8080"} {
		w.must(w.in("web", func() error {
			c, err := net.Dial("tcp4", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			sent := make([]byte, 2<<20)
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

// TestErrorsQuoteTheAddressThatWasAskedFor: who gets an ICMP error finds the socket by the packet that it quotes.
func TestErrorsQuoteTheAddressThatWasAskedFor(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.set(both()))
	for _, to := range []string{"10.43.9.9:81", "10.99.0.5:9", "198.19.0.3:9"} {
		err := w.in("web", func() error {
			c, err := net.Dial("udp4", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			_, _ = c.Write([]byte("hello"))
			_, err = c.Read(make([]byte, 10))
			return err
		})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s, where nobody listens: %v", to, err)
		}
	}
}

// TestWhatChangesLeavesConnectionsAlone: services and guests come and go, and a flush is put right.
func TestWhatChangesLeavesConnectionsAlone(t *testing.T) {
	w := newWorld(t)
	w.must(w.kernel.set(both()))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.in("host", func() error { return w.kernel.run(ctx) }) }()
	defer func() { stop(); <-done }()
	var open net.Conn
	w.must(w.in("web", func() (err error) { open, err = net.Dial("tcp4", "10.43.9.9:80"); return err }))
	defer open.Close()
	echo := func(when string) {
		t.Helper()
		_ = open.SetDeadline(time.Now().Add(3 * time.Second))
		_, _ = open.Write([]byte("x"))
		b := make([]byte, 1)
		for b[0] != 'x' {
			if _, err := open.Read(b); err != nil {
				t.Fatalf("%s: the connection broke: %v", when, err)
			}
		}
	}
	echo("at first")
	fewer := both()
	delete(fewer[0].Services, addr("10.43.9.8"))
	fewer[0].Guests, fewer[1].Guests = fewer[0].Guests[:1], []netip.Addr{addr(dora), addr(db)} // the address of a guest that ended is another home's now
	w.must(w.kernel.set(fewer))
	echo("after a change")
	if got := w.ask("web", "10.43.9.8:80"); got != "" {
		t.Errorf("a service that is gone answers: %q", got)
	}
	if got := w.ask("db", "10.43.9.9:80"); got != "dora's "+db {
		t.Errorf("a guest of dora's with the address of one of alice's before: %q", got)
	}
	w.nft("delete table ip " + Table)
	for end := time.Now().Add(3 * time.Second); w.ask("web", "10.43.9.9:80") != "alice "+web; {
		if time.Now().After(end) {
			t.Fatal("the table that was taken away did not come back")
		}
	}
	echo("after a flush")
	w.must(w.kernel.set(nil))
	if got := w.ask("db", "10.43.9.9:80"); got != "own "+db {
		t.Errorf("with no guests the address is the owner's alone: %q", got)
	}
	if out, err := exec.Command("nft", "list", "table", "ip", Table).CombinedOutput(); err != nil || strings.Contains(string(out), "alice") {
		t.Errorf("without tenants: %v\n%s", err, out)
	}
}

// TestQuestionsToDNSAreLedToWhoIsAlive: while a server of names beats, guests' questions go there, and else to the cluster's DNS.
func TestQuestionsToDNSAreLedToWhoIsAlive(t *testing.T) {
	w := newWorld(t)
	const dns, cluster, names = "10.43.0.10:53", "own ", "host "
	is := func(when, from, want string) {
		t.Helper()
		if got := w.ask(from, dns); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s by TCP: %q, want %q", when, from, got, want)
		}
		if got := w.askUDP(from, dns); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, " from "+dns) {
			t.Errorf("%s: %s by UDP: %q, want %q", when, from, got, want)
		}
	}
	w.must(w.kernel.set(both()))
	is("without a server", "web", cluster)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w.must(w.kernel.answer(netip.MustParseAddrPort(node + ":8080")))
	done := make(chan error, 1)
	go func() { done <- w.in("host", func() error { w.kernel.beat(ctx); return nil }) }()
	is("with one", "web", names)
	is("with one", "dora", names)
	is("the node itself", "host", cluster)
	if got := w.ask("web", "10.43.0.10:8080"); got != "" {
		t.Errorf("another port of the DNS: %q", got)
	}
	time.Sleep(answeredFor + time.Second)
	is("it beats", "web", names)
	stop()
	<-done
	time.Sleep(answeredFor + time.Second)
	is("it was killed", "web", cluster)
	w.must(w.kernel.answer(netip.AddrPort{}))
	is("it ended", "web", cluster)
	w.must(w.kernel.answer(netip.MustParseAddrPort(node + ":8080")))
	is("another began", "web", names)
}
