package guestnet

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// sharedPod is what guests of alice know the owner's pod by; that pod has the address of one at home.
const sharedPod = "10.127.0.200"

func TestGuestsReachAPodThatIsSharedWithTheirHome(t *testing.T) {
	w := newWorld(t)
	shares := services[0]
	shares.Shared = map[netip.Addr]netip.Addr{addr(sharedPod): addr(pod)}
	w.must(w.kernel.Set([]Tenant{shares, services[1]}))
	w.nft("insert rule ip proxy services ip daddr 10.43.7.7 tcp dport 8088 dnat to 10.127.0.200:8080")
	for _, c := range []struct{ what, from, to, want string }{
		{"by its address", "web", sharedPod + ":8080", "own " + web},
		{"by a service of home", "web", "10.43.9.9:8088", "own " + web},
		{"the pod at home is who has that address there", "web", pod + ":8080", "alice " + web},
		{"another home's guest", "dora", sharedPod + ":8080", ""},
		{"another home's, by the pod's address", "dora", pod + ":8080", "dora's " + dora},
		{"the other way it has that address too", "own", web + ":8080", "web " + sharedPod},
		{"and is the owner's to others", "own", dora + ":8080", "dora 10.127.4.1"},
		{"a service beside it", "web", "10.43.9.9:80", "alice " + web},
	} {
		if got := w.ask(c.from, c.to); got != c.want {
			t.Errorf("%s: %s at %s: %q, want %q", c.what, c.from, c.to, got, c.want)
		}
	}
	if got := w.askUDP("web", sharedPod+":8080"); got != "own "+web+" from "+sharedPod+":8080" {
		t.Errorf("by UDP: %q", got)
	}
	// Who gets an error finds the socket by what it quotes.
	err := w.in("web", func() error {
		c, err := net.Dial("udp4", sharedPod+":9")
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
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a closed port: %v", err)
	}
	w.must(w.in("web", func() error { // checksums fit, also of segments that the kernel cuts later
		c, err := net.Dial("tcp4", sharedPod+":8080")
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
			t.Errorf("%d bytes came back of %d, %v", len(after), len(sent), err)
		}
		return err
	}))
	w.must(w.kernel.Set(services))
	if got := w.ask("web", sharedPod+":8080"); got != "" {
		t.Errorf("it is shared no more, and answers: %q", got)
	}
}
