package fence

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// outcome of a try to connect: the place that answered, or one of these.
type outcome string

const (
	open     outcome = "open"     // whoever it was
	silent   outcome = "silent"   // no answer: dropped
	rejected outcome = "rejected" // told that it is forbidden
	refused  outcome = "refused"  // nobody is there
)

const (
	patience = time.Minute            // for what comes, on a machine that is busy with other things
	glance   = 600 * time.Millisecond // for what must not come
)

// within is how long to wait for something, by whether it is to come.
func within(comes bool) time.Duration {
	if comes {
		return patience
	}
	return glance
}

func (w *world) dial(from, to string) outcome { return w.dialAs(from, "", to, glance) }

// dialAs tries for so long from one of the addresses of a place.
func (w *world) dialAs(from, source, to string, patience time.Duration) (got outcome) {
	w.t.Helper()
	network := "tcp"
	addr, udp := strings.CutPrefix(to, "udp:")
	if udp {
		network = "udp"
	}
	if !strings.Contains(addr, ":") {
		addr += ":80"
	}
	if at := netip.MustParseAddrPort(addr); w.six {
		addr = netip.AddrPortFrom(sixOf(at.Addr()), at.Port()).String()
		if source != "" {
			source = sixOf(netip.MustParseAddr(source)).String()
		}
	}
	if w.six { // an error that comes back while the socket is still at its SYN, as it does here, is lost to TCP of IPv6 until it sends the next, after a second
		patience *= 3
	}
	w.in(from, func() error {
		d := net.Dialer{Timeout: patience}
		if ip := net.ParseIP(source); ip != nil && udp {
			d.LocalAddr = &net.UDPAddr{IP: ip}
		} else if ip != nil {
			d.LocalAddr = &net.TCPAddr{IP: ip}
		}
		c, err := d.Dial(network, addr)
		buf, n := make([]byte, 16), 0
		if err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err = c.Write([]byte("hello")); err == nil {
				n, err = c.Read(buf)
			}
		}
		var timeout net.Error
		switch {
		case err == nil:
			got = outcome(strings.TrimSuffix(string(buf[:n]), "hello"))
		case errors.As(err, &timeout) && timeout.Timeout():
			got = silent
		case errors.Is(err, syscall.EHOSTUNREACH), w.six && errors.Is(err, syscall.EACCES): // ICMP admin-prohibited
			got = rejected
		case errors.Is(err, syscall.ECONNREFUSED):
			got = refused
		default:
			got = outcome(err.Error())
		}
		return nil
	})
	return got
}

func (w *world) expect(from, to string, want outcome) {
	w.t.Helper()
	w.expectAs(from, "", to, want)
}

func (w *world) expectAs(from, source, to string, want outcome) {
	w.t.Helper()
	if got := w.dialAs(from, source, to, within(want != silent)); !got.is(want) {
		w.t.Errorf("%s %s to %s: %s, want %s", from, source, to, got, want)
	}
}

// try is one of several that do not have to wait for each other.
type try struct {
	from, source, to string
	want             outcome
}

func (w *world) expectAll(tries ...try) {
	w.t.Helper()
	var done sync.WaitGroup
	for _, one := range tries {
		done.Go(func() { w.expectAs(one.from, one.source, one.to, one.want) })
	}
	done.Wait()
}

// unanswered expects that nobody answers, however that is told.
func (w *world) unanswered(from string, list ...string) {
	w.t.Helper()
	var done sync.WaitGroup
	for _, to := range list {
		done.Go(func() {
			if got := w.dial(from, to); got != silent && got != rejected && got != refused {
				w.t.Errorf("%s to %s: %s", from, to, got)
			}
		})
	}
	done.Wait()
}

func (got outcome) is(want outcome) bool {
	return got == want || want == open && !slices.Contains([]outcome{silent, rejected, refused}, got) && len(got) < 10
}

// soon waits for an outcome.
func (w *world) soon(from, to string, want outcome) time.Duration {
	w.t.Helper()
	began := time.Now()
	for got := w.dial(from, to); !got.is(want); got = w.dial(from, to) {
		if time.Since(began) > patience {
			w.t.Fatalf("%s to %s: %s after %s, want %s", from, to, got, patience, want)
		}
	}
	return time.Since(began)
}

// talk is a connection that stays open.
type talk struct{ net.Conn }

func (w *world) talk(from, to string) talk {
	w.t.Helper()
	var c net.Conn
	w.in(from, func() (err error) {
		c, err = net.DialTimeout("tcp", to+":80", patience)
		return err
	})
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	_, err := c.Read(make([]byte, 16)) // the name
	w.must(err)
	return talk{c}
}

// say reports an error when nothing comes back in time, which depends on whether something is to.
func (c talk) say(comes bool) error {
	_ = c.SetDeadline(time.Now().Add(within(comes)))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}
