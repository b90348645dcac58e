package fence

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"time"
)

// outcome of a try to connect.
type outcome string

const (
	open     outcome = "open"
	silent   outcome = "silent"   // no answer: dropped
	rejected outcome = "rejected" // told that it is forbidden
)

const patience = 600 * time.Millisecond

func (w *world) dial(from, to string) (got outcome) {
	w.t.Helper()
	network := "tcp"
	addr, udp := strings.CutPrefix(to, "udp:")
	if udp {
		network = "udp"
	}
	if !strings.Contains(addr, ":") {
		addr += ":80"
	}
	w.in(from, func() error {
		c, err := net.DialTimeout(network, addr, patience)
		if err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err = c.Write([]byte("hello")); err == nil {
				_, err = c.Read(make([]byte, 5))
			}
		}
		var timeout net.Error
		switch {
		case err == nil:
			got = open
		case errors.As(err, &timeout) && timeout.Timeout():
			got = silent
		case errors.Is(err, syscall.EHOSTUNREACH): // ICMP admin-prohibited
			got = rejected
		default:
			got = outcome(err.Error())
		}
		return nil
	})
	return got
}

func (w *world) expect(from, to string, want outcome) {
	w.t.Helper()
	if got := w.dial(from, to); got != want {
		w.t.Errorf("%s to %s: %s, want %s", from, to, got, want)
	}
}

// soon waits for an outcome.
func (w *world) soon(from, to string, want outcome) time.Duration {
	w.t.Helper()
	began := time.Now()
	for got := w.dial(from, to); got != want; got = w.dial(from, to) {
		if time.Since(began) > 5*time.Second {
			w.t.Fatalf("%s to %s: %s after 5 s, want %s", from, to, got, want)
		}
	}
	return time.Since(began)
}
