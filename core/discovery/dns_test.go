package discovery

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// nameServer serves records on loopback, UDP and TCP; a name of servfail. fails.
func nameServer(t *testing.T, zone ...string) string {
	records := map[string][]dns.RR{}
	exists := map[string]bool{}
	for _, line := range zone {
		rr, err := dns.NewRR(line)
		must(t, err)
		key := rr.Header().Name + dns.TypeToString[rr.Header().Rrtype]
		records[key] = append(records[key], rr)
		exists[rr.Header().Name] = true
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		name, typ := q.Question[0].Name, dns.TypeToString[q.Question[0].Qtype]
		if strings.HasSuffix(name, "servfail.") {
			m.Rcode = dns.RcodeServerFailure
		}
		if c := records[name+"CNAME"]; c != nil && typ != "CNAME" {
			m.Answer = append(m.Answer, c...)
			name = c[0].(*dns.CNAME).Target
		}
		m.Answer = append(m.Answer, records[name+typ]...)
		if len(m.Answer) == 0 {
			soa, _ := dns.NewRR("example. 900 SOA ns. root. 1 1 1 1 120")
			m.Ns = append(m.Ns, soa)
			if !exists[name] && m.Rcode == 0 {
				m.Rcode = dns.RcodeNameError
			}
		}
		if w.LocalAddr().Network() == "udp" {
			m.Truncate(512)
		}
		w.WriteMsg(m)
	})
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	stream, err := net.Listen("tcp", packets.LocalAddr().String())
	must(t, err)
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: stream, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		t.Cleanup(func() { s.Shutdown() })
	}
	return packets.LocalAddr().String()
}

func newDNS(t *testing.T, domain string, servers ...string) *DNS {
	finders, err := NewDNS([]string{domain}, servers, slog.New(slog.DiscardHandler))
	must(t, err)
	return finders[0].(*DNS)
}

func TestDNSLookup(t *testing.T) {
	bob, carol := testID("bob"), testID("carol")
	txt := ` TXT "v=1" "id=` + bob.Compact() + `" "name=Bob's lab"`
	zone := []string{
		"_kith._tcp.one.example. 600 SRV 0 0 6450 lab.example.",
		"_kith._tcp.lab.example. 300" + txt,
		"lab.example. 900 A 192.0.2.7", "lab.example. 900 AAAA 2001:db8::7",

		"_kith._tcp.self.example. 600 SRV 0 0 7000 self.example.",
		"_kith._tcp.self.example. 600 TXT \"v=spf1 -all\"",
		"_kith._tcp.self.example. 600" + txt,
		"self.example. 600 A 192.0.2.8",

		"_kith._tcp.two.example. 600 SRV 20 0 6450 second.example.",
		"_kith._tcp.two.example. 600 SRV 10 0 6450 first.example.",
		"_kith._tcp.second.example. 600 TXT \"v=1\" \"id=" + carol.Compact() + "\" \"name=carol\"",
		"_kith._tcp.first.example. 600" + txt,
		"first.example. 5 CNAME lab.example.",
		"second.example. 600 A 127.0.0.1",

		"_kith._tcp.nameless.example. 600 SRV 0 0 6450 second.nameless.example.",
		"second.nameless.example. 600 A 192.0.2.8",

		"_kith._tcp.none.example. 600 SRV 0 0 0 .",
		"_kith._tcp.broken.example. 600 SRV 0 0 6450 servfail.",
	}
	for i := range 60 { // too much for one UDP answer
		zone = append(zone, "_kith._tcp.many.example. 600 SRV 0 0 "+string(rune('1'+i%9))+"000 lab.example.")
	}
	server := nameServer(t, zone...)
	for _, c := range []struct {
		domain string
		want   []Sighting
		ttl    time.Duration
	}{
		{"one.example", []Sighting{{Name: "Bob's lab", ID: bob, Addresses: ports("192.0.2.7:6450", "[2001:db8::7]:6450")}}, 300 * time.Second},
		{"self.example", []Sighting{{Name: "Bob's lab", ID: bob, Addresses: ports("192.0.2.8:7000")}}, 120 * time.Second},
		{"two.example", []Sighting{
			{Name: "Bob's lab", ID: bob, Addresses: ports("192.0.2.7:6450", "[2001:db8::7]:6450")},
			{Name: "carol", ID: carol}, // its address is ourselves
		}, 5 * time.Second},
		{"nameless.example", nil, 120 * time.Second}, // no TXT record says whose the address is
		{"none.example", nil, 600 * time.Second},
		{"missing.example", nil, 120 * time.Second},
	} {
		t.Run(c.domain, func(t *testing.T) {
			got, ttl, err := newDNS(t, c.domain, server).lookup(t.Context())
			must(t, err)
			for i := range got {
				if got[i].Source != DNSSource || time.Since(got[i].Seen) > time.Minute {
					t.Errorf("%+v", got[i])
				}
				got[i].Source, got[i].Seen = "", time.Time{}
			}
			if !reflect.DeepEqual(got, c.want) || ttl != c.ttl {
				t.Errorf("got  %+v, %v\nwant %+v, %v", got, ttl, c.want, c.ttl)
			}
		})
	}
	if got, _, err := newDNS(t, "many.example", server).lookup(t.Context()); err != nil || len(got) != maxTargets {
		t.Errorf("%d of many, %v", len(got), err)
	}
	if _, _, err := newDNS(t, "broken.example", server).lookup(t.Context()); err == nil || !strings.Contains(err.Error(), "SERVFAIL") {
		t.Errorf("a failing server is no answer: %v", err)
	}
	// A dead server before the living one.
	if got, _, err := newDNS(t, "one.example", "127.0.0.1:1", server).lookup(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("second server: %+v, %v", got, err)
	}
}

func TestDNSRun(t *testing.T) {
	server := nameServer(t, "_kith._tcp.one.example. 600 SRV 0 0 6450 lab.example.", "lab.example. 900 A 192.0.2.7",
		`_kith._tcp.lab.example. 600 TXT "v=1" "id=`+testID("bob").Compact()+`" "name=lab"`)
	d := newDNS(t, "One.example.", server)
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan Event), make(chan error)
	go func() { done <- d.Run(ctx, events) }()
	if e := <-events; e.Name != "lab" || e.Gone {
		t.Errorf("%+v", e)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDNSAsksAgainWhenRecordsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := newDNS(t, "a.example")
		var mu sync.Mutex
		var asked []time.Time
		ttl, names, failure := 5*time.Minute, []string{"bob"}, error(nil)
		d.look = func(context.Context) (out []Sighting, _ time.Duration, _ error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Now())
			for _, n := range names {
				out = append(out, Sighting{Name: n, ID: testID(n), Source: DNSSource, Addresses: ports("192.0.2.7:6450")})
			}
			return out, ttl, failure
		}
		change := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		take, done := follow(ctx, d)
		e := take()
		if len(e) != 1 || e[0].Name != "bob" {
			t.Errorf("%+v", e)
		}

		change(func() { names = []string{"carol"} })
		time.Sleep(5*time.Minute + time.Second)
		if e := take(); len(e) != 2 || !e[0].Gone || e[1].Gone {
			t.Errorf("carol is new and bob is gone: %+v", e)
		}
		if gap := asked[1].Sub(asked[0]); gap < 270*time.Second || gap > 300*time.Second {
			t.Errorf("asked again after %v", gap)
		}

		change(func() { failure, asked = errors.New("SERVFAIL"), nil })
		time.Sleep(10 * time.Minute)
		if e := take(); len(e) != 0 {
			t.Errorf("a failure takes back what was said: %+v", e)
		}
		if n := len(asked); n < 2 || n > 8 {
			t.Errorf("asked a failing server %d times", n)
		}

		change(func() { failure, names, ttl, asked = nil, nil, time.Millisecond, nil })
		time.Sleep(20 * time.Minute)
		if e := take(); len(e) != 1 || !e[0].Gone || e[0].Name != "carol" {
			t.Errorf("carol is not named any more: %+v", e)
		}
		if n := len(asked); n > 40 {
			t.Errorf("a TTL of nothing makes us ask %d times in 20 minutes", n)
		}
		cancel()
		<-done
	})
}

func TestNewDNSRefusesWhatIsNoDomain(t *testing.T) {
	for _, domain := range []string{"", "a b", "http://example.com", strings.Repeat("a.", 130), "..", "exa_mple/"} {
		if _, err := NewDNS([]string{domain}, nil, nil); err == nil {
			t.Errorf("%q passes", domain)
		}
	}
}

// follow collects the events of a finder, in a bubble.
func follow(ctx context.Context, f Finder) (take func() []Event, done chan error) {
	events := make(chan Event)
	var mu sync.Mutex
	var got []Event
	done = make(chan error, 1)
	go func() {
		for e := range events {
			mu.Lock()
			got = append(got, e)
			mu.Unlock()
		}
	}()
	go func() {
		done <- f.Run(ctx, events)
		close(events)
	}()
	return func() []Event {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		out := got
		got = nil
		return out
	}, done
}
