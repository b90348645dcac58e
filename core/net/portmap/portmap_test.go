package portmap

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"
)

// router is one in front of a laptop.
type router struct {
	outside string
	lasts   time.Duration
	refuses Protocol
	mapped  map[Port]uint16
}

func (*router) by() string                                     { return "test" }
func (r *router) external(context.Context) (netip.Addr, error) { return netip.ParseAddr(r.outside) }
func (r *router) add(_ context.Context, p Port, outside uint16, lease time.Duration) (uint16, time.Duration, error) {
	if p.Protocol == r.refuses {
		return 0, 0, errors.New("not authorized")
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
	_, s, renew := m.ask(context.Background(), way{router: netip.MustParseAddr("127.0.0.1"), own: netip.MustParseAddr("127.0.0.1")}, r)
	return s, renew
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
		"for a second":       {outside: "203.0.113.7", lasts: time.Second},
	} {
		r.mapped = map[Port]uint16{}
		m := New(Config{Ports: both, Log: slog.New(slog.DiscardHandler)})
		if mapped, _, err := m.all(t.Context(), r); err == nil || len(mapped) > 0 || len(r.mapped) > 1 || r.refuses != "" && len(r.mapped) > 0 {
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
