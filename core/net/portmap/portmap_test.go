package portmap

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

// router is one in front of a laptop.
type router struct {
	outside string
	lasts   time.Duration
	refuses Protocol
	taken   uint16 // by another laptop: it maps the one after it
	silent  bool
	mapped  map[Port]uint16
}

func (*router) by() string { return "test" }
func (r *router) external(context.Context) (netip.Addr, error) {
	if r.silent {
		return netip.Addr{}, errNoAnswer
	}
	return netip.ParseAddr(r.outside)
}

func (r *router) add(_ context.Context, p Port, outside uint16, lease time.Duration) (uint16, time.Duration, error) {
	if p.Protocol == r.refuses {
		return 0, 0, errors.New("not authorized")
	}
	if outside == r.taken {
		outside++
	}
	r.mapped[p] = outside
	return outside, min(lease, r.lasts), nil
}

func (r *router) remove(_ context.Context, p Port, _ uint16) error {
	delete(r.mapped, p)
	return nil
}

var both = []Port{{UDP, 6450}, {TCP, 6450}}

func asked(r *router) (Status, time.Duration) {
	r.mapped = map[Port]uint16{}
	m := New(Config{Ports: both, Log: slog.New(slog.DiscardHandler)})
	_, s, renew := m.ask(context.Background(), held{at: here, by: r})
	return s, renew
}

var here = way{router: netip.MustParseAddr("127.0.0.1"), own: netip.MustParseAddr("127.0.0.1")}

// TestARenewalThatFailsForgetsNothing: what the router has is asked for again as it was, and taken back at the end.
func TestARenewalThatFailsForgetsNothing(t *testing.T) {
	for name, fail := range map[string]func(*router){
		"it is silent":    func(r *router) { r.silent = true },
		"it refuses TCP":  func(r *router) { r.refuses = TCP },
		"it refuses both": func(r *router) { r.refuses, r.outside = UDP, "0.0.0.0" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // its questions to a router of this host wait for no answer
			r := &router{outside: "203.0.113.7", lasts: time.Hour, taken: 6450, mapped: map[Port]uint16{}}
			m := New(Config{Ports: both, Log: slog.New(slog.DiscardHandler)})
			was, s, _ := m.ask(t.Context(), held{at: here, by: r})
			if s.State != Mapped || r.mapped[both[0]] != 6451 || r.mapped[both[1]] != 6451 {
				t.Fatalf("%+v, the router has %v", s, r.mapped)
			}
			well := *r
			fail(r)
			if was, s, _ = m.ask(t.Context(), was); s.State != Refused && s.State != NoRouter || len(s.Mappings) > 0 || len(r.mapped) != 2 {
				t.Errorf("%+v, the router has %v", s, r.mapped)
			}
			m.set(s) // as Run does
			*r = well
			r.taken = 0
			if was, s, _ = m.ask(t.Context(), was); s.State != Mapped || s.Mappings[0].At.Port() != 6451 || s.Mappings[1].At.Port() != 6451 {
				t.Errorf("it is well again: %+v", s)
			}
			fail(r)
			was, _, _ = m.ask(t.Context(), was)
			if m.end(t.Context(), was); len(r.mapped) > 0 {
				t.Errorf("at the end the router has %v", r.mapped)
			}
		})
	}
}

// TestWhatEndedIsNotTakenBack: another laptop may have that port by now.
func TestWhatEndedIsNotTakenBack(t *testing.T) {
	r := &router{outside: "203.0.113.7", lasts: time.Hour, mapped: map[Port]uint16{}}
	m := New(Config{Ports: both, Log: slog.New(slog.DiscardHandler)})
	was, _, _ := m.ask(t.Context(), held{at: here, by: r})
	was.ports[0].ends = time.Now().Add(-time.Second)
	if m.end(t.Context(), was); len(r.mapped) != 1 || r.mapped[both[0]] == 0 {
		t.Errorf("the router has %v", r.mapped)
	}
}

// TestAnIdleLaptopIsWokenOnceAnHour at most, unless the router grants less.
func TestAnIdleLaptopIsWokenOnceAnHour(t *testing.T) {
	for lasts, want := range map[time.Duration]time.Duration{24 * time.Hour: time.Hour, 2 * time.Hour: time.Hour, 10 * time.Minute: 5 * time.Minute} {
		if s, renew := asked(&router{outside: "203.0.113.7", lasts: lasts}); s.State != Mapped || renew != want {
			t.Errorf("granted for %s it is %s, renewed after %s", lasts, s.State, renew)
		}
	}
}

// TestOfARouterThatRefusesOnePortNoneIsKept, nor of one that has no address outside, or grants next to no time.
func TestOfARouterThatRefusesOnePortNoneIsKept(t *testing.T) {
	for name, r := range map[string]*router{
		"it refuses":         {outside: "203.0.113.7", lasts: time.Hour, refuses: TCP},
		"it has no address":  {outside: "0.0.0.0", lasts: time.Hour},
		"it names this host": {outside: "127.0.0.1", lasts: time.Hour},
		"it has IPv6 alone":  {outside: "2001:db8::7", lasts: time.Hour},
		"it says more lines": {outside: "2001:db8::7%a\nmapped 198.51.100.1:22", lasts: time.Hour},
		"for a second":       {outside: "203.0.113.7", lasts: time.Second},
	} {
		r.mapped = map[Port]uint16{}
		m := New(Config{Ports: both, Log: slog.New(slog.DiscardHandler)})
		if mapped, _, err := m.all(t.Context(), r, held{}); err == nil || len(mapped) > 0 || len(r.mapped) > 1 || r.refuses != "" && len(r.mapped) > 0 {
			t.Errorf("%s: %v, %d of them stay (%v)", name, mapped, len(r.mapped), err)
		}
	}
}

func TestARouterBehindAnotherIsSaid(t *testing.T) {
	for _, outside := range []string{"192.168.1.7", "100.64.3.4"} {
		if s, _ := asked(&router{outside: outside, lasts: time.Hour}); s.State != Nested || len(s.Mappings) != 2 {
			t.Errorf("%s: %+v", outside, s)
		}
	}
}

// TestWhatARouterSaysIsOneShortLine: an answer may have 256 KiB of anything, and goes to the log and to kith doctor.
func TestWhatARouterSaysIsOneShortLine(t *testing.T) {
	for _, hostile := range []string{strings.Repeat("x", mostAnswer), "no\n\u009b31m\u202emore", "\xff\xfe"} {
		got := whyOf(errors.New(hostile))
		if len(got) == 0 || len(got) > mostWhy || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%d bytes: %q", len(got), got[:min(len(got), mostWhy)])
		}
	}
}

// FuzzADeviceDescribed: whatever a router says of itself, nothing but the router is asked, and nobody is harmed by it.
func FuzzADeviceDescribed(f *testing.F) {
	f.Add([]byte(`<root xmlns="urn:schemas-upnp-org:device-1-0"><URLBase>http://198.51.100.1/</URLBase><device><deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType>
		<serviceList><service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType><controlURL>/control</controlURL></service></serviceList></device></root>`))
	f.Add([]byte("<a><a>"))
	at := way{router: netip.MustParseAddr("192.0.2.1"), own: netip.MustParseAddr("192.0.2.2")}
	where := &url.URL{Scheme: "http", Host: "192.0.2.1:5000", Path: "/"}
	f.Fuzz(func(_ *testing.T, body []byte) {
		_, _ = described(bytes.NewReader(body), where, &http.Client{Transport: only(at)})
	})
}

// FuzzASearchAnswered: a datagram of the router's is an answer that names a place, or nothing.
func FuzzASearchAnswered(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nST: " + igd + "\r\nLOCATION: http://192.0.2.1/\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		if resp, err := answered(datagram, nil); err == nil && resp == nil {
			t.Fatal("neither an answer nor none")
		} else if err == nil {
			_, _ = resp.Location()
		}
	})
}

// TestAfterSleepTheRouterIsAskedAgain: its leases may have ended, and the time until they are renewed did not pass meanwhile.
func TestAfterSleepTheRouterIsAskedAgain(t *testing.T) {
	m := New(Config{Ports: both, Log: slog.New(slog.DiscardHandler)})
	m.Woke()
	m.Woke() // nobody took the first one yet
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if moved, err := m.wait(ctx, way{}, nil, time.Hour); err != nil || !moved {
		t.Errorf("%t, %v", moved, err)
	}
}
